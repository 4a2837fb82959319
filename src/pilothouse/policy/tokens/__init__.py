"""Bearer tokens of operators' own issuers (JWT): what makes one good, and when an issuer's keys are fetched."""
