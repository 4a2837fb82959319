"""The APIs the fake engine speaks: each module reads its requests and writes its responses."""
