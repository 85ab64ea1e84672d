"""Pure functions: facts, request and catalog in; a plan or refusals out."""
