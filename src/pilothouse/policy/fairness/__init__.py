"""In what order requests are served when there is not enough for all: tiers, and fair shares within a tier."""
