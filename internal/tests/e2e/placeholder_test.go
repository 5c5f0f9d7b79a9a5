package e2e_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/template"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
)

// Placeholders that Caddy documents for requests, with a word of the operator's for *.
var documented = []string{
	"http.request.cookie.sid", "http.request.cookie.connect.sid", "http.request.duration", "http.request.duration_ms",
	"http.request.uuid", "http.request.header.X-Key", "http.request.header.x_key", "http.request.header.remote_ip",
	"http.request.host", "http.request.host.labels.0", "http.request.host.labels.12", "http.request.hostport",
	"http.request.method", "http.request.orig_method", "http.request.orig_uri", "http.request.orig_uri.path",
	"http.request.orig_uri.path.0", "http.request.orig_uri.path.12", "http.request.orig_uri.path.dir",
	"http.request.orig_uri.path.file", "http.request.orig_uri.path.file_escaped", "http.request.orig_uri.query",
	"http.request.orig_uri.prefixed_query", "http.request.port", "http.request.proto", "http.request.proto_name",
	"http.request.local", "http.request.local.host", "http.request.local.port",
	"http.request.remote", "http.request.remote.host", "http.request.remote.host/24", "http.request.remote.host/24,48",
	"http.request.remote.port", "http.request.scheme",
	"http.request.tls.version", "http.request.tls.cipher_suite", "http.request.tls.resumed", "http.request.tls.proto",
	"http.request.tls.proto_mutual", "http.request.tls.server_name", "http.request.tls.ech",
	"http.request.tls.client.fingerprint", "http.request.tls.client.public_key", "http.request.tls.client.public_key_sha256",
	"http.request.tls.client.certificate_pem", "http.request.tls.client.certificate_der_base64",
	"http.request.tls.client.issuer", "http.request.tls.client.serial", "http.request.tls.client.subject",
	"http.request.tls.client.san.dns_names", "http.request.tls.client.san.dns_names.0",
	"http.request.tls.client.san.emails", "http.request.tls.client.san.emails.3",
	"http.request.tls.client.san.ips", "http.request.tls.client.san.ips.0",
	"http.request.tls.client.san.uris", "http.request.tls.client.san.uris.0",
	"http.request.uri", "http.request.uri_escaped", "http.request.uri.path", "http.request.uri.path_escaped",
	"http.request.uri.path.0", "http.request.uri.path.12", "http.request.uri.path.dir", "http.request.uri.path.file",
	"http.request.uri.path.file.base", "http.request.uri.path.file.ext",
	"http.request.uri.query", "http.request.uri.query_escaped", "http.request.uri.prefixed_query",
	"http.request.uri.query.page", "http.request.uri.query.a.b",
	"http.response.header.X-Plan", "http.vars.client_ip", "http.vars.plan", "http.vars.trusted_proxy",
	"http.shutting_down", "http.time_until_shutdown",
}

// Placeholders that others than Caddy's replacer of requests give a value.
var ofOthers = []string{
	"http.regexp.1", "http.regexp.name.1", "http.matchers.file.relative", "http.reverse_proxy.upstream.host",
	"http.auth.user.id", "http.auth.user.email", "http.auth.candidate.id", "http.error.status_code", "http.intercept.status_code", "http.sliding_window.api.remaining",
	"http.url_pattern.path.id", "env.REGION", "system.hostname", "time.now.unix", "time.now.year",
	"quota", "plan", "customer", "geoip2.country_code", "maxmind_geolocation.country_code", "jwt.sub", "tier.0",
	"user", "user_id", "client_id", "http.vars.client_id", "http.vars.user_id", "host_id", "region", "tenant", "email", "mode", "part", "file_type", "path_prefix",
}

// warned is what loading a configuration writes to Caddy's log, from level warn on.
func warned(t *testing.T, config []byte) string {
	t.Helper()
	var c map[string]any
	if err := json.Unmarshal(config, &c); err != nil {
		t.Fatal(err)
	}
	c["logging"] = map[string]any{"logs": map[string]any{"default": map[string]any{
		"writer": map[string]any{"output": "sliding_window_test"}, "level": "WARN",
	}}}
	c["admin"] = map[string]any{"disabled": true}
	text, _ := json.Marshal(c) // it was JSON
	caddyLog.Reset()
	if err := validate(t, text); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return caddyLog.String()
}

// wantWarnings wants a line with each of the texts, in this order, and no other line of
// this module.
func wantWarnings(t *testing.T, log string, want ...string) {
	t.Helper()
	var got []string
	for line := range strings.Lines(log) {
		if strings.Contains(line, "sliding_window") {
			got = append(got, line)
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %d warnings, want %d:\n%s", len(got), len(want), strings.Join(got, ""))
		return
	}
	for i, line := range got {
		if !strings.Contains(line, want[i]) {
			t.Errorf("got the warning\n%swant\n%s", line, want[i])
		}
	}
}

// zoneWith is a handler with a placeholder in every option that takes one.
func zoneWith(placeholder string) string {
	return strings.ReplaceAll(`{"handler":"sliding_window","zones":[{"name":"api","key":"{NAME}","limits":[{"max":"{NAME}","window":"{NAME}"}],
		"fallback":{"max":1,"window":"1s"},"cost":"{NAME}","algorithm":{"name":"stream","fields":[{"name":"a","value":"{NAME}"}]},
		"match":[{"vars":{"{NAME}":["a"]}},{"expression":"{NAME} == 'a'"}]}]}`, "NAME", placeholder)
}

// No valid placeholder is refused, or makes a warning.
func TestKnownPlaceholders(t *testing.T) {
	for _, name := range append(documented, ofOthers...) {
		if slices.Contains([]string{"http.request.proto_name", "http.request.tls.ech"}, name) || strings.HasSuffix(name, "_escaped") {
			if caddyrun.IsBefore(t, 2, 11, 0) {
				continue
			}
		}
		t.Run(name, func(t *testing.T) {
			handler := zoneWith(name)
			if name == "http.request.uuid" || strings.HasPrefix(name, "http.request.duration") { // keys must not differ for each request
				handler = strings.Replace(handler, `"key":"{`+name+`}"`, `"key":"{http.request.host}"`, 1)
			}
			if strings.ContainsAny(name, "/") { // which expressions take for a division
				handler = strings.ReplaceAll(handler, `,{"expression":"{`+name+`} == 'a'"}`, "")
			}
			wantWarnings(t, warned(t, handlerConfig(t, handler)))
		})
	}
}

// A shorthand of Caddyfiles is a placeholder there.
func TestKnownShorthands(t *testing.T) {
	var b strings.Builder
	names := []string{
		"host", "hostport", "port", "orig_method", "orig_uri", "orig_path", "orig_dir", "orig_file", "orig_query", "orig_?query",
		"method", "uri", "%uri", "path", "%path", "dir", "file", "query", "%query", "?query", "remote", "remote_host", "remote_port", "scheme",
		"tls_cipher", "tls_version", "tls_client_fingerprint", "tls_client_issuer", "tls_client_serial", "tls_client_subject",
		"tls_client_certificate_pem", "tls_client_certificate_der_base64", "upstream_hostport", "client_ip",
		"header.X-Key", "cookie.sid", "labels.0", "path.0", "file.base", "query.page", "re.name.1", "vars.plan", "rp.status_code", "resp.status_code",
		"err.status_code", "file_match.relative",
	}
	for i, name := range names {
		if strings.HasPrefix(name, "%") && caddyrun.IsBefore(t, 2, 11, 0) {
			continue
		}
		fmt.Fprintf(&b, "\t\tzone z%d {\n\t\t\tkey {%s}\n\t\t\tlimit {%[2]s} 1m\n\t\t\tcost {%[2]s}\n\t\t\tfallback 1 1s\n\t\t\tmatch vars {%[2]s} a\n\t\t}\n", i, name)
	}
	config, err := adapt(t, "http:// {\n\tsliding_window {\n"+b.String()+"\t}\n}\n")
	if err != nil {
		t.Fatal(err)
	}
	wantWarnings(t, warned(t, config))
}

// Names that a client of no kind can ever give a value are refused, with what was meant.
func TestUnknownPlaceholders(t *testing.T) {
	const address = "{client_ip}, which is {http.vars.client_ip} in JSON"
	for name, meant := range map[string]string{
		"http.request.remote_ip":           address,
		"http.request.remote.ip":           address,
		"http.request.remote.addr":         address,
		"http.request.client_ip":           address,
		"http.request.clientip":            address,
		"http.request.ip":                  address,
		"http.request.real_ip":             address,
		"http.request.vars.client_ip":      address,
		"http.request.remote_host":         "{http.request.remote.host}",
		"http.request.remote.hots":         "{http.request.remote.host}",
		"http.request.Host":                "{http.request.host}",
		"http.request.path":                "{http.request.uri.path}",
		"http.request.uri.pth":             "{http.request.uri.path}",
		"http.request.query":               "{http.request.uri.query}",
		"http.request.query.page":          "{http.request.uri.query.page}",
		"http.request.headers.X-Api-Key":   "{http.request.header.X-Api-Key}",
		"http.request.cookies.connect.sid": "{http.request.cookie.connect.sid}",
		"http.request.labels.1":            "{http.request.host.labels.1}",
		"http.request.user.id":             "{http.auth.user.id}",
		"http.request.auth.user.id":        "{http.auth.user.id}",
		"http.request.tls.servername":      "{http.request.tls.server_name}",
		"http.request.tls.client.cn":       "",
		"http.request.uri.path.first":      "",
		"http.request.x":                   "",
		"http.request.":                    "",
	} {
		want := "{" + name + "} is not a placeholder of Caddy and never has a value; "
		if meant != "" {
			want += "write " + meant
		} else {
			want += "caddyserver.com/docs/json/apps/http lists those that are"
		}
		for _, c := range []struct{ caddyfile, json, where string }{
			{"\t\t\tkey {%s}\n\t\t\tlimit 1 1m", `"key":"{%s}","limits":[{"max":1,"window":"1m"}]`, `key "{%s}": `},
			{"\t\t\tlimit 1 1m\n\t\t\tkey a-{method}-{%s}", `"key":"a-{http.request.method}-{%s}","limits":[{"max":1,"window":"1m"}]`, `key "a-{http.request.method}-{%s}": `},
			{"\t\t\tlimit {%s} 1m\n\t\t\tfallback 1 1m", `"limits":[{"max":"{%s}","window":"1m"}],"fallback":{"max":1,"window":"1m"}`, `limit max "{%s}": `},
			{"\t\t\tlimit 1 {%s}\n\t\t\tfallback 1 1m", `"limits":[{"max":1,"window":"{%s}"}],"fallback":{"max":1,"window":"1m"}`, `limit window "{%s}": `},
			{"\t\t\tlimit 1 1m\n\t\t\tcost {%s}", `"cost":"{%s}","limits":[{"max":1,"window":"1m"}]`, `cost "{%s}": `},
			{"\t\t\tlimit 1 1m\n\t\t\talgorithm stream {\n\t\t\t\tfields who {%s}\n\t\t\t}", `"algorithm":{"name":"stream","fields":[{"name":"who","value":"{%s}"}]},"limits":[{"max":1,"window":"1m"}]`, `algorithm stream: fields: who "{%s}": `},
			{"\t\t\tlimit 1 1m\n\t\t\tmatch vars {%s} a", `"match":[{"vars":{"{%s}":["a"]}}],"limits":[{"max":1,"window":"1m"}]`, `match vars: `},
			{"\t\t\tlimit 1 1m\n\t\t\tmatch {\n\t\t\t\tnot header X-Key {%s}\n\t\t\t}", `"match":[{"not":[{"header":{"X-Key":["{%s}"]}}]}],"limits":[{"max":1,"window":"1m"}]`, `match not: `},
		} {
			if name == "http.request." && strings.HasPrefix(c.where, "match") {
				continue // braces of any kind
			}
			want := "zone api: " + strings.ReplaceAll(c.where, "%s", name) + want
			_, err := adapt(t, "http:// {\n\tsliding_window {\n\t\tzone api {\n"+fmt.Sprintf(c.caddyfile, name)+"\n\t\t}\n\t}\n}\n")
			if err == nil || !strings.Contains(err.Error(), template.ShortIn(want)+", at Caddyfile:") {
				t.Errorf("Caddyfile: got\n%v, want\n%s", err, want)
			}
			err = validate(t, handlerConfig(t, fmt.Sprintf(`{"handler":"sliding_window","zones":[{"name":"api",`+c.json+`}]}`, name)))
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("JSON: got\n%v, want\n%s", err, want)
			}
		}
	}
}

// A name that a map or another module may define is a warning if it resembles one of Caddy's.
func TestResemblingPlaceholders(t *testing.T) {
	const address = "{client_ip}, which is {http.vars.client_ip} in JSON"
	for name, meant := range map[string]string{
		"remote_ip": address, "clientip": address, "remote.ip": address, "remote_addr": address, "ip": address, "Client_IP": address,
		"http.client_ip": address, "http.vars.clientip": address, "http.vars.remote_ip": address,
		"http.auth.user": "{http.auth.user.id}", "auth.user.id": "{http.auth.user.id}",
		"remotehost": "{http.request.remote.host}", "request.host": "{http.request.host}", "http.host": "{http.request.host}",
		"headers.X-Key": "{http.request.header.X-Key}", "http.header.X-Key": "{http.request.header.X-Key}",
	} {
		t.Run(name, func(t *testing.T) {
			var want []string
			for _, option := range []string{"key", "limit", "cost", "fields", "match"} {
				want = append(want, fmt.Sprintf(`"msg":"placeholder is not one of Caddy's and has no value unless another module defines it","zone":"api","option":"%s","placeholder":"%s","probably_meant":"%s"`, option, template.Short("{"+name+"}"), meant))
			}
			wantWarnings(t, warned(t, handlerConfig(t, zoneWith(name))), want...)
			for _, defines := range []string{
				`{"handler":"map","source":"{http.request.host}","destinations":["{other}","{` + name + `}"],"mappings":[{"input":"a","outputs":["b","c"]}]}`,
				`{"handler":"subroute","routes":[{"handle":[{"handler":"map","source":"{http.request.host}","destinations":["{` + name + `}"],"mappings":[{"input":"a","outputs":["b"]}]}]}]}`,
			} {
				wantWarnings(t, warned(t, handlerConfig(t, defines, zoneWith(name))))
				wantWarnings(t, warned(t, []byte(strings.Replace(string(handlerConfig(t, defines, zoneWith(name))), "},{\"handler\":\"sliding_window\"", "}]},{\"handle\":[{\"handler\":\"sliding_window\"", 1))))
			}
		})
	}
	vars := `{"handler":"vars","clientip":"{http.request.header.X-Real-IP}"}`
	wantWarnings(t, warned(t, handlerConfig(t, vars, zoneWith("http.vars.clientip"))))
}

// A zone in several places makes its warnings once.
func TestWarningsOnce(t *testing.T) {
	zone := `{"handler":"sliding_window","zones":[{"name":"api","key":"{remote_ip}","limits":[{"max":1,"window":"1m"}]}]}`
	wantWarnings(t, warned(t, handlerConfig(t, zone, zone)), `"placeholder":"{remote_ip}"`)
}

// A key without a placeholder is one counter for all: that is meant if it is `all`.
func TestConstantKey(t *testing.T) {
	const message = `key holds no placeholder, so that all requests share one counter; write key all if that is meant","zone":"api","key":`
	for key, want := range map[string]string{
		"all":                       "",
		"client_ip":                 `,"probably_meant":"{client_ip}, which is {http.vars.client_ip} in JSON"}`,
		"remote_ip":                 `,"probably_meant":"{client_ip}, which is {http.vars.client_ip} in JSON"}`,
		"http.request.remote.host":  `,"probably_meant":"{http.request.remote.host}"}`,
		"header.X-Key":              `,"probably_meant":"{http.request.header.X-Key}"}`,
		"static":                    `}`,
		"everybody":                 `}`,
		`\\{client_ip}`:             `}`,
		"{env.REGION}":              "",
		"x{http.request.header.X}y": "",
	} {
		var lines []string
		if want != "" {
			lines = append(lines, message+`"`+key+`"`+want)
		}
		wantWarnings(t, warned(t, handlerConfig(t, `{"handler":"sliding_window","zones":[{"name":"api","key":"`+key+`","limits":[{"max":1,"window":"1m"}]}]}`)), lines...)
	}
	wantWarnings(t, warned(t, handlerConfig(t, `{"handler":"sliding_window","zones":[{"name":"api","limits":[{"max":1,"window":"1m"}]}]}`)))
}

// Braces of expressions and regular expressions are no placeholders.
func TestBracesInMatchers(t *testing.T) {
	for _, match := range []string{
		`{"path_regexp":{"name":"n","pattern":"^/a{2,3}/{client_ip}{http.request.remote_ip}$"}}`,
		`{"expression":"{'http.request.remote_ip': 1} != {'remote_ip': 2}"}`,
		`{"expression":"'\\{http.request.remote_ip}' == 'a'"}`,
		`{"header":{"X-Kind":["\\{http.request.remote_ip}"]}}`,
	} {
		wantWarnings(t, warned(t, handlerConfig(t, `{"handler":"sliding_window","zones":[{"name":"api","match":[`+match+`],"limits":[{"max":1,"window":"1m"}]}]}`)))
	}
}
