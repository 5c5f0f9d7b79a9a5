package e2e_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	slidingwindow "github.com/slidingwindow/caddy-sliding-window"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/stores"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

func readFile(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// readmeBlocks returns the fenced blocks of README.md in a language.
func readmeBlocks(t *testing.T, language string) []string {
	t.Helper()
	blocks := blocksOf(readFile(t, "README.md"), language)
	if len(blocks) == 0 {
		t.Fatalf("README.md has no block in %q", language)
	}
	return blocks
}

// checkCaddyfile wants a Caddyfile to be as `caddy fmt` writes it, and to load with texts
// of its JSON replaced.
func checkCaddyfile(t *testing.T, caddyfile, certificates string, replace ...string) []byte {
	t.Helper()
	config, err := adapt(t, caddyfile)
	if err != nil {
		t.Fatalf("%v\n%s", err, caddyfile)
	}
	config = []byte(strings.NewReplacer(append(replace, "/etc/caddy/redis", certificates)...).Replace(string(config)))
	if err := validate(t, config); err != nil {
		t.Errorf("%v\n%s", err, caddyfile)
	}
	return config
}

func TestReadmeCaddyfileExample(t *testing.T) {
	wantWarnings(t, warned(t, checkCaddyfile(t, readFile(t, "Caddyfile.example"), "")))
}

// What Caddyfile.example has commented is a Caddyfile, too.
func TestReadmeExampleOnRedis(t *testing.T) {
	_, rest, found := strings.Cut(readFile(t, "Caddyfile.example"), "\n# {\n")
	if !found {
		t.Fatal("Caddyfile.example has no global options to take away the signs of")
	}
	var lines []string
	for line := range strings.Lines("# {\n" + rest) {
		lines = append(lines, strings.TrimPrefix(line, "# "))
	}
	config := checkCaddyfile(t, strings.Join(lines, ""), "")
	if !bytes.Contains(config, []byte(`"module":"redis"`)) {
		t.Errorf("there is no Redis in %s", config)
	}
}

// writeCertificates returns a directory with ca.pem, client.pem and client.key.
func writeCertificates(t *testing.T) string {
	t.Helper()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	pair := server.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, block := range map[string]*pem.Block{
		"ca.pem":     {Type: "CERTIFICATE", Bytes: pair.Certificate[0]},
		"client.pem": {Type: "CERTIFICATE", Bytes: pair.Certificate[0]},
		"client.key": {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The page of errors answers to the letter what docs/clients.md says.
func TestReadmeErrorPage(t *testing.T) {
	var page string
	for _, block := range blocksOf(readFile(t, "docs/clients.md"), "caddyfile") {
		if strings.Contains(block, "handle_errors") {
			page = block
		}
	}
	address := caddyrun.FreeAddress(t)
	page = strings.Replace(page, ":8080 {", "http://"+address+" {", 1)
	page = strings.Replace(page, "reverse_proxy localhost:9000", "respond ok", 1)
	page = strings.Replace(page, "per_client", "readme_error_page", 1)
	// Cleaning certificates would outlast the test.
	const options = "{\n\tadmin off\n\tpersist_config off\n\tauto_https off\n\tstorage_clean_interval off\n}\n"
	if err := loadCaddy(options + page); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = caddy.Stop() })
	client := caddyrun.NewClient(t)
	var last caddyrun.Answer
	for range 11 {
		last = caddyrun.MustGet(t, client, address, "")
	}
	want := fmt.Sprintf(`{"code":429,"message":"Too many requests","retry_after":%s}`, last.Header.Get("Retry-After"))
	if last.Status != http.StatusTooManyRequests || last.Body != want {
		t.Errorf("the eleventh answer is %d with the body %s, want 429 with %s", last.Status, last.Body, want)
	}
	example := `{"code":429,"message":"Too many requests","retry_after":10}`
	if !strings.Contains(readFile(t, "docs/clients.md"), example) {
		t.Errorf("docs/clients.md does not show %s", example)
	}
}

// The user that docs/redis.md makes is allowed all that decisions need.
func TestReadmeACL(t *testing.T) {
	command := regexp.MustCompile(`(?m)^ACL SETUSER (\w+) on >(\w+) ~sw:\* -@all (.*)$`).FindStringSubmatch(readFile(t, redisPage))
	if command == nil {
		t.Fatal("docs/redis.md has no ACL SETUSER")
	}
	if command[3] != redis.Permissions {
		t.Errorf("docs/redis.md allows %s, errors ask for %s", command[3], redis.Permissions)
	}
	for _, words := range []string{redis.ClusterPermissions, redis.SentinelPermissions} {
		if !strings.Contains(readFile(t, redisPage), "`"+words+"`") {
			t.Errorf("docs/redis.md does not say %s", words)
		}
	}
	server, ctx := redistest.Start(t), context.Background()
	var args []any
	for word := range strings.FieldsSeq(command[0]) {
		args = append(args, word)
	}
	if err := server.Client(t).Do(ctx, args...).Err(); err != nil {
		t.Fatal(err)
	}
	var now int64
	for _, clock := range []func() int64{nil, func() int64 { return now }} {
		now = 1_000_000
		store := redis.New(redis.Options{
			Addresses: []string{server.Addr}, Username: command[1], Password: command[2], Timeout: 5 * time.Second, Now: clock,
		})
		defer func() { _ = store.Close() }()
		if err := store.Ping(ctx); err != nil {
			t.Error(err)
		}
		instances := store.Engine().(engine.Instancer)
		for _, step := range []int64{0, 1000, -1000} { // no process is there, one is, and a clock has stepped back
			now += step
			if _, err := instances.Register(ctx); err != nil {
				t.Error(err)
			}
		}
		if err := instances.Leave(ctx); err != nil {
			t.Error(err)
		}
		for _, algorithm := range []window.Algorithm{
			window.Zset{},
			window.Log{},
			window.Stream{},
			window.Slices{},
			window.GCRA{},
			window.Layers{Coarse: 500 * time.Millisecond, Fine: 100 * time.Millisecond},
		} {
			charges := []window.Charge{{
				Zone: fmt.Sprint("acl", clock != nil), Key: "k", Cost: 2, Algorithm: algorithm,
				Policies: []window.Policy{{Limit: 10, Window: time.Minute}, {Limit: 5, Window: time.Second}},
			}}
			// Units come, are denied, leave, and lie in the future of a clock that
			// stepped back.
			for _, step := range []int64{0, 1, 0, 700, 700, 5000, 60000, -1000, 0, 0, 60000} {
				now += step
				if _, err := store.Take(ctx, charges); err != nil {
					t.Errorf("%s: %v", algorithm.Name(), err)
				}
				if err := store.ChargeMore(ctx, charges[0], 1); err != nil {
					t.Errorf("%s: %v", algorithm.Name(), err)
				}
			}
		}
	}
}

// reference are the documents that hold every option, placeholder, metric and line of log.
var reference = []string{"README.md", "docs/caddyfile.md", "docs/json.md", "docs/clients.md", "docs/metrics.md", redisPage}

// Every word, field, placeholder and metric that the code knows is in the
// reference, and every placeholder and metric in the reference is known to the code.
func TestReadmeNames(t *testing.T) {
	var text strings.Builder
	for _, document := range reference {
		text.WriteString(readFile(t, document))
	}
	documented := text.String()
	source := parseSource(t)

	words := source.cases(func(function string) bool { return strings.HasPrefix(strings.ToLower(function), "unmarshal") })
	words = append(words, source.constants(regexp.MustCompile(`^(onError|empty|fields)[A-Z]`))...)
	for _, v := range []any{
		slidingwindow.Handler{},
		slidingwindow.App{},
		slidingwindow.Zone{},
		slidingwindow.Limit{},
		slidingwindow.Algorithm{},
		slidingwindow.Layers{},
		slidingwindow.Adaptive{},
		slidingwindow.Field{},
		slidingwindow.Lease{},
		slidingwindow.Alert{},
		slidingwindow.Settle{},
		slidingwindow.Weight{},
		slidingwindow.Load{},
		slidingwindow.LoadRange{},
		stores.Memory{},
		stores.Redis{},
		stores.TLS{},
	} {
		for field := range fieldsOf(reflect.TypeOf(v)) {
			words = append(words, field)
		}
	}
	if len(words) < 60 {
		t.Errorf("found only %d words in the code: %q", len(words), words)
	}
	for _, word := range words {
		if !regexp.MustCompile(`\b` + regexp.QuoteMeta(word) + `\b`).MatchString(documented) {
			t.Errorf("the reference does not say %q", word)
		}
	}

	placeholders := setOf(source.cases(func(function string) bool { return function == "placeholder" || function == "decisionField" })...)
	shown := make(map[string]bool)
	for _, m := range regexp.MustCompile(`\{http\.sliding_window\.(?:<zone>\.)?([^}]*)\}`).FindAllStringSubmatch(documented, -1) {
		shown[m[1]] = true
	}
	sameNames(t, "placeholders", shown, placeholders)

	metrics := make(map[string]bool)
	for name, labels := range source.metrics() {
		metrics[name] = true
		row := regexp.MustCompile("(?m)^\\| `" + name + "` \\| `" + strings.Join(labels, "`, `") + "` \\| [^|]+\\? \\| [^|]+ \\|$")
		if !row.MatchString(documented) {
			t.Errorf("the reference has no row for the metric %s with the labels %q and the question that it answers", name, labels)
		}
	}
	sameNames(t, "metrics", setOf(regexp.MustCompile(`caddy_sliding_window_\w+`).FindAllString(documented, -1)...), metrics)
	events := slices.DeleteFunc(source.in("events").constants(regexp.MustCompile(``)), func(value string) bool { return !strings.HasPrefix(value, "sliding_window_") })
	sameNames(t, "events", setOf(submatches(documented, "(?m)^\\| `(sliding_window_\\w+)` \\|")...), setOf(events...))
	for _, outcome := range append(source.arguments("WithLabelValues"), source.arguments("OutcomeOf")...) {
		if !strings.Contains(documented, "`"+outcome+"`") {
			t.Errorf("the reference does not name the outcome or store %q", outcome)
		}
	}

	logged := setOf(source.arguments("Warn")...)
	for _, m := range regexp.MustCompile(`(?m)^\{"level":"warn".*"msg":"([^"]*)"`).FindAllStringSubmatch(documented, -1) {
		if !logged[m[1]] {
			t.Errorf("the reference shows a line of log that the code does not write: %s", m[1])
		}
		delete(logged, m[1])
	}
	if len(logged) > 0 {
		t.Errorf("the reference does not show the lines of log %q", slices.Sorted(maps.Keys(logged)))
	}
}

// The README is as long as somebody reads, and begins with how it is installed.
func TestReadmeIsShort(t *testing.T) {
	lines := strings.Split(readFile(t, "README.md"), "\n")
	if len(lines) > 201 {
		t.Errorf("README.md has %d lines, want 200 at most", len(lines)-1)
	}
	if i := slices.Index(lines, "## Install"); i < 0 || i > 40 {
		t.Errorf("README.md says how to install in line %d, want one of the first 40", i+1)
	}
}

// What the README tells to make is a target.
func TestReadmeTargets(t *testing.T) {
	makefile := readFile(t, "Makefile")
	for _, m := range regexp.MustCompile("(?m)^make ([a-z-]+)$").FindAllStringSubmatch(readFile(t, "README.md"), -1) {
		if !strings.Contains(makefile, "\n"+m[1]+":") {
			t.Errorf("make has no target %q", m[1])
		}
	}
}

// Tests that documents name are where they say.
func TestDocumentedTests(t *testing.T) {
	link := regexp.MustCompile("\\[`(\\w+)(?:/([^`]+))?`\\]\\((?:\\.\\./)+([\\w/]+\\.go)\\)")
	for document, least := range map[string]int{
		"docs/algorithms.md": 10, "docs/reliability.md": 40, "internal/tests/README.md": 4,
		"docs/recipes.md": 1, "docs/redis.md": 2, "docs/choosing.md": 1, "docs/migrating.md": 1,
	} {
		named := link.FindAllStringSubmatch(readFile(t, document), -1)
		if len(named) < least {
			t.Errorf("%s names only %d tests", document, len(named))
		}
		for _, m := range named {
			code := readFile(t, m[3])
			if !strings.Contains(code, "\nfunc "+m[1]+"(t *testing.T") || !strings.Contains(code, strconv.Quote(m[2])) && m[2] != "" {
				t.Errorf("%s names %s, which is not in %s", document, m[0], m[3])
			}
		}
	}
	rows := regexp.MustCompile(`(?m)^\| (\d+) \|`).FindAllStringSubmatch(readFile(t, "docs/reliability.md"), -1)
	for i, row := range rows {
		if row[1] != strconv.Itoa(i+1) {
			t.Errorf("docs/reliability.md: row %d is numbered %s", i+1, row[1])
		}
	}
	if len(rows) != 38 {
		t.Errorf("docs/reliability.md has %d faults, want 38", len(rows))
	}
}

// fieldsOf returns the names of a struct's fields in JSON.
func fieldsOf(t reflect.Type) map[string]bool {
	names := make(map[string]bool)
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name != "" {
			names[name] = true
		}
	}
	return names
}

func setOf(names ...string) map[string]bool {
	s := make(map[string]bool)
	for _, name := range names {
		s[name] = true
	}
	return s
}

func sameNames(t *testing.T, what string, documented, code map[string]bool) {
	t.Helper()
	if len(code) == 0 || !maps.Equal(documented, code) {
		t.Errorf("%s: the reference has %q, the code has %q", what, slices.Sorted(maps.Keys(documented)), slices.Sorted(maps.Keys(code)))
	}
}

// source is the code of the plugin, without tests: the root and every package that it imports, but for
// the engine, which is a library of its own.
type source []*ast.File

const module = "github.com/slidingwindow/caddy-sliding-window"

func parseSource(t *testing.T) source {
	t.Helper()
	var s source
	seen := map[string]bool{module: true}
	for packages := []string{module}; len(packages) > 0; packages = packages[1:] {
		names, err := filepath.Glob("." + strings.TrimPrefix(packages[0], module) + "/*.go")
		if err != nil || len(names) == 0 {
			t.Fatalf("%s has no code: %v", packages[0], err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			s = append(s, file)
			for _, i := range file.Imports {
				path, _ := strconv.Unquote(i.Path.Value) // the parser has read it
				inside, own := strings.CutPrefix(path, module+"/")
				if own && !seen[path] && !strings.HasPrefix(inside, "window") && inside != "lua" {
					seen[path] = true
					packages = append(packages, path)
				}
			}
		}
	}
	return s
}

// cases returns the strings that stand behind case in functions.
func (s source) cases(in func(function string) bool) []string {
	var all []string
	for _, file := range s {
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !in(f.Name.Name) {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if c, ok := n.(*ast.CaseClause); ok {
					for _, expr := range c.List {
						all = append(all, literals(expr)...)
					}
				}
				return true
			})
		}
	}
	return all
}

// in returns the files of a package.
func (s source) in(name string) source {
	return slices.DeleteFunc(slices.Clone(s), func(file *ast.File) bool { return file.Name.Name != name })
}

// constants returns the strings that constants of such names stand for.
func (s source) constants(names *regexp.Regexp) []string {
	var all []string
	for _, file := range s {
		ast.Inspect(file, func(n ast.Node) bool {
			if v, ok := n.(*ast.ValueSpec); ok && names.MatchString(v.Names[0].Name) {
				for _, value := range v.Values {
					all = append(all, literals(value)...)
				}
			}
			return true
		})
	}
	return all
}

// metrics returns the metrics that the code makes, with their labels.
func (s source) metrics() map[string][]string {
	all := make(map[string][]string)
	for _, file := range s {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 2 {
				return true
			}
			f, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !strings.HasPrefix(f.Sel.Name, "New") || !strings.HasSuffix(f.Sel.Name, "Vec") {
				return true
			}
			part := make(map[string]string)
			for _, element := range call.Args[0].(*ast.CompositeLit).Elts {
				pair := element.(*ast.KeyValueExpr)
				part[pair.Key.(*ast.Ident).Name] = strings.Join(literals(pair.Value), "")
			}
			all[part["Namespace"]+"_"+part["Subsystem"]+"_"+part["Name"]] = literals(call.Args[1])
			return true
		})
	}
	return all
}

// arguments returns the strings that calls of a method or a function have as arguments.
func (s source) arguments(method string) []string {
	var all []string
	for _, file := range s {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			f, isMethod := call.Fun.(*ast.SelectorExpr)
			function, isFunction := call.Fun.(*ast.Ident)
			if isMethod && f.Sel.Name == method || isFunction && function.Name == method {
				for _, argument := range call.Args {
					if l, ok := argument.(*ast.BasicLit); ok {
						all = append(all, literals(l)...)
					}
				}
			}
			return true
		})
	}
	return all
}

// submatches returns what the group of a pattern matches in a text.
func submatches(text, pattern string) []string {
	var all []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

// literals returns the strings in an expression.
func literals(expr ast.Expr) []string {
	var all []string
	ast.Inspect(expr, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
			text, _ := strconv.Unquote(l.Value) // the parser has read it
			all = append(all, text)
		}
		return true
	})
	return all
}
