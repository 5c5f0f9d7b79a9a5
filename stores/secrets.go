package stores

import (
	"errors"
	"fmt"
	"strings"

	"github.com/caddyserver/caddy/v2"
)

// leastSecret is how many bytes a secret of hash_keys has at least. There are few
// addresses: whoever can guess the secret can tell them by their hashes.
const leastSecret = 16

var errShortSecret = fmt.Errorf("hash_keys: a secret is shorter than %d bytes; make one with openssl rand -base64 32", leastSecret)

// checkHashKeys reports what is wrong with the secrets as configured. Like all that
// is said of secrets, it does not repeat them.
func checkHashKeys(secrets []string) error {
	switch {
	case secrets == nil:
		return nil
	case len(secrets) == 0 || len(secrets) > 2:
		return errors.New("hash_keys takes one secret, or two during a rotation: new, then former")
	case len(secrets) == 2 && secrets[0] == secrets[1]:
		return errors.New("hash_keys: the two secrets are the same; take out the second")
	}
	for _, secret := range secrets {
		if len(secret) < leastSecret && !hasPlaceholder(secret) {
			return errShortSecret
		}
	}
	return nil
}

// checkExpandedHashKeys checks secrets without placeholders, which may now hold
// braces.
func checkExpandedHashKeys(secrets []string) error {
	for _, secret := range secrets {
		if len(secret) < leastSecret {
			return errShortSecret
		}
	}
	return checkHashKeys(secrets)
}

// expandSecret replaces the placeholders in a text. Errors name a placeholder only
// if it is one that configurations have: any other braces may be part of a secret.
func expandSecret(repl *caddy.Replacer, text string) (string, error) {
	return repl.ReplaceFunc(text, func(name string, value any) (any, error) {
		switch {
		case caddy.ToString(value) != "":
			return value, nil
		case strings.HasPrefix(name, "env."), strings.HasPrefix(name, "file."):
			return nil, errNoValue(name)
		}
		return nil, errors.New("the braces are not a placeholder with a value; write \\{ and \\} for braces of the text")
	})
}

// expandText replaces the placeholders in a text that is no secret.
func expandText(repl *caddy.Replacer, text string) (string, error) {
	return repl.ReplaceFunc(text, func(name string, value any) (any, error) {
		if caddy.ToString(value) == "" {
			return nil, errNoValue(name)
		}
		return value, nil
	})
}

// errNoValue refuses a placeholder without a value. What it says of the cure holds for
// the process that loads the configuration, not for one that only adapts it.
func errNoValue(name string) error {
	switch {
	case strings.HasPrefix(name, "env."):
		return fmt.Errorf("{%s} has no value; set the variable in the environment of Caddy", name)
	case strings.HasPrefix(name, "file."):
		return fmt.Errorf("{%s} has no value; Caddy must be able to read the file, which must not be empty", name)
	}
	return fmt.Errorf("unrecognized placeholder {%s}; use {env.*} or {file.*}, or \\{ and \\} for braces of the text", name)
}
