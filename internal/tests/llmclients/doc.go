// Package llmclients has the clients of language models, in the version of package-lock.json, talk to a Caddy with
// limits of tokens. Its test needs node and these clients: make test-clients brings them.
package llmclients
