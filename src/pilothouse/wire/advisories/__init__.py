"""Advisory records of other shapes, as OSV records: GitHub's, CVE's and CSAF's."""
