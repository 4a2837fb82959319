"""The output filter: cuts at every offset, clean text, CPU, quality, many streams."""
