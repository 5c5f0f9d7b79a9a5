package replay

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/template"
	"github.com/slidingwindow/caddy-sliding-window/internal/replay/accesslog"
	"github.com/slidingwindow/caddy-sliding-window/internal/request"
)

// stepKey is the key of the step in the context of its request.
type stepKey struct{}

// step is a request of the log on its way through the configuration. It is the context of the request.
type step struct {
	context.Context
	engine *engine
	line   *accesslog.Line
	server *server
	vars   map[string]any       // of the request
	tls    *tls.ConnectionState // nil: none
	hold   func()               // returns at the end of the answer; nil: answers take no time
	gone   bool                 // the client hung up before the answer
	failed error                // what the log cannot tell
}

// Value implements context.Context.
func (s *step) Value(key any) any {
	if key == (stepKey{}) {
		return s
	}
	return s.Context.Value(key)
}

// Err implements context.Context.
func (s *step) Err() error {
	if s.gone {
		return context.Canceled
	}
	return nil
}

// begin takes part in the request before all handlers.
func (s *step) begin(r *http.Request) error {
	ctx := r.Context()
	s.tls = r.TLS
	s.vars, _ = ctx.Value(caddyhttp.VarsCtxKey).(map[string]any)
	if s.server.clientFromLog && s.line.Has(accesslog.FieldClientIP) {
		s.vars[caddyhttp.ClientIPVarKey] = s.line.ClientIP
	}
	for field := range s.engine.plan.compared {
		s.checkField(field, "a matcher compares")
	}
	caddys := ctx.Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	repl := caddy.NewEmptyReplacer()
	repl.Map(s.fromLog)
	repl.Map(caddys.Get)
	*r = *r.WithContext(context.WithValue(ctx, caddy.ReplacerCtxKey, repl)) // Caddy's own placeholders keep r
	return s.failed
}

// answer answers as the log says, when the log says so.
func (s *step) answer(w http.ResponseWriter) error {
	if s.failed != nil {
		return s.failed
	}
	if s.hold != nil {
		s.hold()
	}
	status := s.line.Status
	s.gone = status == request.StatusClientClosed || status == 0
	if s.engine.plan.fields {
		copyFields(w.Header(), s.line)
	}
	if status >= 100 {
		w.WriteHeader(status)
	}
	return nil
}

// fromLog has the placeholders whose values are in the log only, and those that the log cannot tell. It knows no others.
func (s *step) fromLog(name string) (any, bool) {
	plan := s.engine.plan
	if member, ok := plan.members[name]; ok {
		if v, p := s.line.Member(member); p == accesslog.Present {
			return v, true
		}
	}
	field, isField := strings.CutPrefix(name, "http.request.header.")
	switch {
	case name == "http.request.uri" || name == "http.request.uri.path" || name == "http.request.method":
		return nil, false
	case isField:
		s.checkField(strings.ToLower(field), s.users(name)+" asks for")
		return nil, false
	case strings.HasPrefix(name, "http.request.cookie."):
		s.checkField("cookie", s.users(name)+" asks for a cookie of")
		return nil, false
	case name == "http.request.remote.port":
		s.need(accesslog.FieldRemotePort, name)
	case name == "http.request.proto" || name == "http.request.proto_name":
		s.need(accesslog.FieldProto, name)
	case name == "http.request.scheme":
		s.need(accesslog.FieldTLS, name)
	case name == "http.request.host" || name == "http.request.hostport" || strings.HasPrefix(name, "http.request.host.labels."):
		if len(s.server.hosts) != 1 {
			s.need(accesslog.FieldHost, "http.request.host")
		}
	case name == "http.request.port":
		s.need(accesslog.FieldHost, name)
	case name == "http.auth.user.id":
		s.need(accesslog.FieldUserID, name)
	case strings.HasPrefix(name, "http.request.tls."):
		if !slices.Contains(tlsInLog, strings.TrimPrefix(name, "http.request.tls.")) || !s.line.Has(accesslog.FieldTLS) {
			s.lacks(name, "")
		} else if s.tls != nil {
			describe(s.tls, s.line)
		}
	case unlogged(name):
		s.lacks(name, "")
	default:
		return s.other(name)
	}
	return nil, false
}

// tlsInLog are the placeholders of a TLS connection that logs tell.
var tlsInLog = []string{"server_name", "version", "cipher_suite", "proto", "resumed"}

// unlogged reports whether a placeholder needs a body, a connection, an identity or the time that a request takes.
func unlogged(name string) bool {
	for _, prefix := range []string{"http.request.body", "http.request.local", "http.request.uuid", "http.request.duration", template.AuthNames, "http.reverse_proxy."} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// other returns the value of a placeholder that is not Caddy's own: log_append may have put it there.
func (s *step) other(name string) (any, bool) {
	plan := s.engine.plan
	own := !strings.Contains(name, ".")
	if variable, ok := strings.CutPrefix(name, "http.vars."); ok {
		own = !slices.Contains(varsOfCaddy, variable)
	}
	if !own || plan.defined[name] {
		return nil, false
	}
	if v, p := s.line.Member(strings.TrimPrefix(name, "http.vars.")); p == accesslog.Present {
		return v, true
	}
	if plan.siteless {
		s.lacks(name, "")
	} else if len(plan.notRun) > 0 {
		s.lacks(name, "it may be that of "+strings.Join(plan.notRun, ", ")+", which a replay does not run; ")
	}
	return nil, false
}

// varsOfCaddy are variables of requests that Caddy sets.
var varsOfCaddy = []string{caddyhttp.ClientIPVarKey, caddyhttp.TrustedProxyVarKey, "start_time", "root", "fs", "uuid"}

// users returns what asks for a placeholder.
func (s *step) users(name string) string { return s.engine.plan.uses(name) }

// need refuses a placeholder unless the log has a field.
func (s *step) need(f accesslog.Field, name string) {
	if !s.line.Has(f) {
		s.lacks(name, "")
	}
}

// lacks notes a placeholder that the log cannot tell.
func (s *step) lacks(name, why string) {
	short := template.Short("{" + name + "}")
	s.fail(fmt.Errorf("%s asks for %s, which the log does not tell; %swrite log_append %s %s in the site, and take a log that has it",
		s.users(name), short, why, memberFor(name), short))
}

// memberFor returns a name for the member of a log with the value of a placeholder.
func memberFor(name string) string {
	return strings.ToLower(name[strings.LastIndexByte(name, '.')+1:])
}

// checkField refuses a field of the request's header that the log does not tell.
func (s *step) checkField(field, asks string) {
	if s.failed != nil {
		return
	}
	if s.engine.plan.setElsewhere[field] {
		s.fail(fmt.Errorf("%s %s, which another server sets that a replay does not ask; write log_append %s {header.%s} behind it, and take a log that has it", asks, field, memberFor(field), field))
		return
	}
	switch _, p := s.line.Header(field); p {
	case accesslog.Redacted:
		s.fail(fmt.Errorf("%s %s, which the log has redacted; write log_append <name> {<what the key needs of it>} in the site, or log_credentials in the global options under servers, and take a log that has it", asks, field))
	case accesslog.Unknown:
		s.fail(fmt.Errorf("%s %s, which a log in this format does not tell; take an access log of Caddy in JSON", asks, field))
	}
}

// fail notes why the request cannot be decided on.
func (s *step) fail(err error) {
	if s.failed == nil {
		s.failed = fmt.Errorf("%s:%d: %w", s.line.Source, s.line.Number, err)
	}
}
