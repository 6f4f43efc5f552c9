"""`init`: a repository for somebody's own platform, which pins this program; `text/` has what stands in it."""
