"""`init`: writes a repository for a platform, which pins this version of Tidegate. `text/` has its files."""
