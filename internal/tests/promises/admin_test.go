package promises

import (
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
)

// endpoints have what each path of the admin API reads and answers.
var endpoints = map[string]struct{ question, answer []reflect.Type }{
	"zones":   {answer: shapes(control.Zones{})},
	"status":  {answer: shapes(control.Status{})},
	"inspect": {shapes(control.Selector{}), shapes(control.Inspection{}, control.RequestInspection{})},
	"reset":   {shapes(control.ResetOrder{}), shapes(control.Reset{})},
	"enforce": {shapes(control.Enforce{}), shapes(control.Enforced{})},
	"top":     {shapes(control.TopQuery{}), shapes(control.Top{})},

	"bans":      {answer: shapes(control.BanList{})},
	"bans/set":  {shapes(control.BanOrder{}), shapes(control.BanChange{})},
	"bans/lift": {shapes(control.LiftOrder{}), shapes(control.BanChange{})},

	"overrides/list":    {shapes(control.OverrideFilter{}), shapes(control.OverrideList{})},
	"overrides/set":     {shapes(overrides.Record{}), shapes(control.OverrideChange{})},
	"overrides/delete":  {shapes(overrides.Record{}), shapes(control.OverrideChange{})},
	"overrides/replace": {shapes(control.OverrideSet{}), shapes(control.OverrideChange{})},
}

func shapes(values ...any) (all []reflect.Type) {
	for _, v := range values {
		all = append(all, reflect.TypeOf(v))
	}
	return all
}

// TestAdmin holds the endpoints of the admin API that docs/operating.md has, with the fields of questions and answers, and the
// commands that ask them. TestEndpoints holds that the document has all endpoints.
func TestAdmin(t *testing.T) {
	operating, err := os.ReadFile("docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	info, err := caddy.GetModule("admin.api.sliding_window")
	if err != nil {
		t.Fatal(err)
	}
	handler := info.New().(caddy.AdminRouter).Routes()[0].Handler
	var got []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(GET|POST) "+control.Base+"([a-z/]+)`").FindAllStringSubmatch(string(operating), -1) {
		method, path := m[1], m[2]
		w := httptest.NewRecorder()
		_ = handler.ServeHTTP(w, httptest.NewRequest(http.MethodDelete, control.Base+path, nil))
		if w.Header().Get("Allow") != method {
			t.Errorf("%s %s: the API allows %q there", method, path, w.Header().Get("Allow"))
			continue
		}
		name := method + " " + control.Base + path
		if slices.Contains(got, name) {
			continue
		}
		e, ok := endpoints[path]
		if !ok {
			t.Errorf("%s: the list of endpoints here has no types for it", path)
		}
		got = append(got, name)
		for _, of := range e.question {
			got = append(got, fields(name+" reads ", of)...)
		}
		for i, of := range e.answer {
			answers := " answers "
			if i > 0 {
				answers = " answers about a request "
			}
			got = append(got, fields(name+answers, of)...)
		}
	}
	slices.Sort(got)
	hold(t, "admin", slices.Compact(got))
}

// TestCommands holds the commands of caddy sliding-window, and their flags.
func TestCommands(t *testing.T) {
	root := &cobra.Command{Use: "caddy sliding-window"}
	caddycmd.Commands()["sliding-window"].CobraFunc(root)
	flag := regexp.MustCompile(`(?m)^ +(?:-\w, | +)(--[a-z-]+(?: [a-zA-Z]+)?)`)
	var got []string
	var walk func(path string, c *cobra.Command)
	walk = func(path string, c *cobra.Command) {
		got = append(got, path)
		for _, m := range flag.FindAllStringSubmatch(c.LocalNonPersistentFlags().FlagUsages(), -1) {
			got = append(got, path+" "+m[1])
		}
		for _, m := range flag.FindAllStringSubmatch(c.PersistentFlags().FlagUsages(), -1) {
			got = append(got, path+" ... "+m[1])
		}
		for _, of := range c.Commands() {
			name, _, _ := strings.Cut(of.Use, " ")
			walk(path+" "+name, of)
		}
	}
	walk("caddy sliding-window", root)
	hold(t, "commands", got)
}
