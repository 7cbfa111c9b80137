"""The API by subject, a router each; pages for people go here too."""
