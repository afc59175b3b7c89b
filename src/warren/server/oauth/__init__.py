"""OAuth 2: clients log in with tokens, and scopes in the token say what they may do."""
