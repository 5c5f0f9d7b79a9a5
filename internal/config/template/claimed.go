package template

import "strings"

// TrustedFor returns the placeholder to use in the place of a header field in which proxies write the address of a client,
// such as X-Forwarded-For, X-Real-IP, Forwarded or CF-Connecting-IP; empty for any other placeholder. Clients can send such
// a field themselves, with any address.
func TrustedFor(name string) string {
	field, ok := strings.CutPrefix(strings.ToLower(name), RequestNames+"header.")
	if !ok {
		return ""
	}
	word := squash(field)
	if word == "forwarded" || strings.HasSuffix(word, "forwardedfor") || strings.HasSuffix(field, "-ip") || strings.HasSuffix(word, "clientip") {
		return clientIPName
	}
	return ""
}
