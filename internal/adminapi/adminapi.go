// Package adminapi is the module of Caddy's admin endpoint by which operators look at the zones that run, and
// change what holds in them. Package control has what it reads and answers.
package adminapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/running"
)

// API is what an operator asks Caddy's admin endpoint about the zones that run, below
// /sliding_window/. It keeps nothing: Caddy makes it before the zones, and for configurations
// that fail to load.
type API struct{ evaluate Evaluate }

// New returns the API. The function meet has the zones of a handler meet an example of a request.
func New(evaluate Evaluate) API { return API{evaluate} }

// CaddyModule returns the Caddy module information.
func (a API) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "admin.api.sliding_window", New: func() caddy.Module { return &API{a.evaluate} }}
}

// Routes implements caddy.AdminRouter.
func (a API) Routes() []caddy.AdminRoute {
	return []caddy.AdminRoute{{Pattern: control.Base, Handler: caddy.AdminHandlerFunc(a.serve)}}
}

// endpoint is a path of the API. Caddy logs the URI of each request, but no body: whatever holds a
// key is a POST.
type endpoint struct {
	method string
	serve  func(r *http.Request, body []byte) (status int, answer any, err error)
}

func (a API) endpoints() map[string]endpoint {
	return map[string]endpoint{
		"zones":   {http.MethodGet, getZones},
		"status":  {http.MethodGet, getStatus},
		"inspect": {http.MethodPost, a.inspect},
		"reset":   {http.MethodPost, reset},
		"enforce": {http.MethodPost, setEnforcement},
		"top":     {http.MethodPost, top},

		"bans":      {http.MethodGet, listBans},
		"bans/set":  {http.MethodPost, setBan},
		"bans/lift": {http.MethodPost, liftBans},

		"overrides/list":    {http.MethodPost, listOverrides},
		"overrides/set":     {http.MethodPost, setOverrides},
		"overrides/delete":  {http.MethodPost, deleteOverrides},
		"overrides/replace": {http.MethodPost, replaceOverrides},
	}
}

func (a API) serve(w http.ResponseWriter, r *http.Request) error {
	e, ok := a.endpoints()[strings.TrimPrefix(r.URL.Path, control.Base)]
	if !ok {
		return refused(http.StatusNotFound, errors.New("no such path; use zones, status, inspect, reset, enforce, top, bans or overrides/list below "+control.Base))
	}
	if r.Method != e.method {
		w.Header().Set("Allow", e.method)
		return refused(http.StatusMethodNotAllowed, errors.New("method not allowed; use "+e.method))
	}
	var body []byte
	if e.method == http.MethodPost {
		var err error
		if body, err = readBody(w, r); err != nil {
			return err
		}
	}
	if err := await(w, r, func() bool { return isStarting(r) }); err != nil {
		return err
	}
	status, answer, err := e.serve(r, body)
	if isMissing(r, err) {
		if err := await(w, r, running.Zones.IsLoading); err != nil {
			return err
		}
		status, answer, err = e.serve(r, body)
	}
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	if text, ok := answer.(plainText); ok {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, string(text)) // the client may be gone
		return nil
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer) // the client may be gone
	return nil
}

// plainText is an answer that is no JSON.
type plainText string

func refused(status int, err error) error { return caddy.APIError{HTTPStatus: status, Err: err} }

// readBody returns the body of a POST. Web pages cannot send its content type to another origin.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, refused(http.StatusUnsupportedMediaType, errors.New("Content-Type: must be application/json"))
	}
	most := int64(control.MaxBody)
	if strings.HasPrefix(r.URL.Path, control.Base+"overrides/") {
		most = control.MaxOverrides
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return nil, refused(http.StatusRequestEntityTooLarge, fmt.Errorf("body: longer than %d bytes", most))
	case err != nil:
		return nil, refused(http.StatusBadRequest, errors.New("body: could not be read to its end"))
	}
	return body, nil
}

// Interface guards.
var _ caddy.AdminRouter = API{}
