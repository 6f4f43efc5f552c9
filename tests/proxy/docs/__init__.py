"""docs/proxy-api.md says what is so."""
