"""What pydantic found wrong, in words for the person who wrote the file; `stacks.schema_errors` is the way in."""
