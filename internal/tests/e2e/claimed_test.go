package e2e_test

import (
	"fmt"
	"testing"
)

// A key of a header field that tells an address is one that clients choose. The log says so when the configuration loads, and
// what to write instead. Other header fields, other options and the address itself are no reason to warn.
func TestKeyOfClaimedAddress(t *testing.T) {
	const message = `"msg":"key is an address that any client can write into a header field; write {client_ip}, and trusted_proxies for the proxies that set the field","zone":"api","placeholder":"{header.%s}","probably_meant":"{client_ip}, which is {http.vars.client_ip} in JSON"`
	warns := map[string]bool{
		"X-Forwarded-For": true, "x-forwarded-for": true, "X-Real-IP": true, "Forwarded": true, "True-Client-IP": true, "CF-Connecting-IP": true,
		"Fastly-Client-IP": true, "X-Client-IP": true, "X-Original-Forwarded-For": true, "X-Azure-ClientIP": true,
		"X-Key": false, "Authorization": false, "X-Forwarded-Host": false, "X-Forwarded-Proto": false, "Cookie": false, "X-Trip": false,
	}
	for field, want := range warns {
		var lines []string
		if want {
			lines = []string{fmt.Sprintf(message, field)}
		}
		for _, key := range []string{"{http.request.header." + field + "}", "{http.request.host} {http.request.header." + field + "}"} {
			config := `{"handler":"sliding_window","zones":[{"name":"api","key":"` + key + `","limits":[{"max":1,"window":"1m"}]}]}`
			wantWarnings(t, warned(t, handlerConfig(t, config)), lines...)
		}
		for _, written := range []string{"{header." + field + "}", "{http.request.header." + field + "}"} {
			config, err := adapt(t, "http:// {\n\tsliding_window api "+written+" 5 1m\n}\n")
			if err != nil {
				t.Fatal(err)
			}
			wantWarnings(t, warned(t, config), lines...)
		}
	}
	for _, zone := range []string{
		`"key":"{http.vars.client_ip}"`, `"key":"{http.request.remote.host}"`, `"key":"all","cost":"{http.request.header.X-Real-IP}"`,
	} {
		wantWarnings(t, warned(t, handlerConfig(t, `{"handler":"sliding_window","zones":[{"name":"api",`+zone+`,"limits":[{"max":1,"window":"1m"}]}]}`)))
	}
}
