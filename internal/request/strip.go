package request

import (
	"maps"
	"net/http"
	"strings"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/compiled"
	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
)

// strippedFields returns the settings whose header field is stripped from the answer to an admitted request: also where
// the request costs nothing, and under an override that exempts its key.
func (h *Handler) strippedFields(req *request) (all []*compiled.Settle) {
	for _, z := range req.zones {
		if z.Settle != nil && z.Settle.Strip {
			all = append(all, z.Settle)
		}
	}
	if req.marks != nil {
		all = append(all, h.strippedFields(req.marks)...)
	}
	if req.deniedBy != nil { // it marks the request, and no other zone that does was looked at
		for _, z := range h.live {
			if z.Settle != nil && z.Settle.Strip && z.Enforced() == enforce.Mark {
				all = append(all, z.Settle)
			}
		}
	}
	if req.overridden != nil {
		for _, r := range req.overridden.rules {
			if r.Exempt && r.zone.Settle != nil && r.zone.Settle.Strip {
				all = append(all, r.zone.Settle)
			}
		}
	}
	return all
}

// stripped is the variable of the HTTP request with the fields that were stripped from its answer:
// outer handlers read them, too.
const stripped = "sliding_window}stripped"

// strip removes the fields that clients must not see.
func (a *settlingWriter) strip() {
	for _, s := range a.strippedFields {
		announceLess(a.header, s.Header)
		if a.header.Values(s.Header) == nil {
			continue
		}
		if a.req.vars != nil {
			off, _ := a.req.vars[stripped].(http.Header)
			if off == nil {
				off = make(http.Header)
				a.req.vars[stripped] = off
			}
			off.Set(s.Header, a.header.Get(s.Header))
		}
		a.header.Del(s.Header)
	}
}

// WriteHeader implements http.ResponseWriter. The fields are stripped from an interim answer, such as
// 103, and restored for the final one.
func (a *settlingWriter) WriteHeader(status int) {
	if len(a.strippedFields) == 0 || a.Status != 0 || status >= 200 || status == http.StatusSwitchingProtocols {
		a.Writer.WriteHeader(status)
		return
	}
	header, off := a.Header(), make(http.Header)
	for _, s := range a.strippedFields {
		if values := header.Values(s.Header); values != nil {
			off[http.CanonicalHeaderKey(s.Header)] = values
			header.Del(s.Header)
		}
	}
	a.Writer.WriteHeader(status)
	maps.Copy(header, off)
}

// tellingHeader returns the header that has the field of s.
func (a *settlingWriter) tellingHeader(s *compiled.Settle) http.Header {
	if off, ok := a.req.vars[stripped].(http.Header); ok && a.header.Values(s.Header) == nil {
		return off
	}
	return a.header
}

// announceLess takes a name out of the trailers that a header announces.
func announceLess(header http.Header, name string) {
	announced := header["Trailer"]
	if announced == nil {
		return
	}
	var others []string
	for _, one := range strings.Split(strings.Join(announced, ","), ",") {
		if one = strings.TrimSpace(one); one != "" && !strings.EqualFold(one, name) {
			others = append(others, one)
		}
	}
	if header.Del("Trailer"); others != nil {
		header.Set("Trailer", strings.Join(others, ", "))
	}
}

// stripTrailers strips the fields from the trailers, which handlers set after the body. A trailer tells no cost.
func (a *settlingWriter) stripTrailers() {
	for _, s := range a.strippedFields {
		a.header.Del(s.Header)
		a.header.Del(http.TrailerPrefix + http.CanonicalHeaderKey(s.Header))
	}
}
