package normalize

import (
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestFold(t *testing.T) {
	for s, want := range map[string]string{
		"": "", "one.test": "one.test", "ONE.Test": "one.test", "oNE": "one",
		"Bücher": "bücher", "BÜCHER": "bücher", "ünder": "ünder", "日本": "日本",
		"\u212aey": "key", "te\u017ft": "test", // Kelvin and long s
		"ΣΑΣ": "σασ", "σας": "σασ", "İi": "İi", "ıI": "ıi", "ß": "ß", "ẞ": "ß",
		"\xff\xfeA": "\xff\xfea", "\xff\xfe": "\xff\xfe", "\xc3A": "\xc3a", "A\uFFFD": "a\uFFFD",
	} {
		if got := Fold(s); got != want {
			t.Errorf("Fold(%q) = %q, want %q", s, got, want)
		}
	}
}

// spells compares what a function makes of values with what it has to.
func spells(t *testing.T, name string, spell func(string) string, wants map[string]string) {
	t.Helper()
	for value, want := range wants {
		if got := spell(value); got != want {
			t.Errorf("%s(%q) = %q, want %q", name, value, got, want)
		}
	}
}

func TestHost(t *testing.T) {
	spells(t, "HostPort", HostPort, map[string]string{
		"one.test": "one.test", "ONE.test": "one.test", "one.test.": "one.test", "One.Test.:80": "one.test",
		"one.test:80": "one.test", "one.test:": "one.test", "one.test:http": "one.test", "one.test..": "one.test.",
		"[one.test]": "one.test", "[one.test": "one.test", "one.test]": "one.test", "[one.test]:80": "one.test",
		"one.test:80:90": "one.test:80:90", "[2001:DB8::1]": "2001:db8::1", "[2001:db8::1]:443": "2001:db8::1",
		"2001:db8::1": "2001:db8::1", "": "", ".": ".", "[]": "[]", ":80": "", "xn--BCHER-kva.test": "xn--bcher-kva.test",
	})
}

func TestLabel(t *testing.T) {
	for n, want := range []string{"test", "one", "", ""} {
		if got := Label("one.test", n); got != want {
			t.Errorf("label %d is %q, want %q", n, got, want)
		}
	}
}

func TestPath(t *testing.T) {
	spells(t, "Path", Path, map[string]string{
		"/login": "/login", "//login": "/login", "/./login": "/login", "/x/../login": "/login", "/../../login": "/login",
		"/login/": "/login/", "//login//": "/login/", "/login/.": "/login", "/": "/", "//": "/", "": "/", "*": "*",
		"/Login": "/Login", `/x\..\login`: `/x\..\login`, "/a/b/": "/a/b/", "/.../login": "/.../login",
	})
}

func TestPart(t *testing.T) {
	for n, want := range []string{"a", "b", "", ""} {
		if got := Part("/a/b/", n); got != want {
			t.Errorf("part %d is %q, want %q", n, got, want)
		}
	}
}

func TestURI(t *testing.T) {
	spells(t, "URI", URI, map[string]string{
		"/login": "/login", "//login": "/login", "/x/../login?a=b": "/login?a=b", "/x/%2e%2e/login": "/login",
		"/l%6fgin": "/login", "/l%6Fgin?%61": "/login?%61", "/login?": "/login", "/login??": "/login??",
		"/a%3fb": "/a%3Fb", "/a%3Fb?c": "/a%3Fb?c", "/x%2f..%2flogin": "/login", "/a[b": "/a%5Bb", "/a%5bb": "/a%5Bb",
		"http://ONE.test//login": "/login", "http://one.test": "/", "*": "*", "one.test:80": "one.test:80", "": "", "/%zz": "/%zz",
		"/ü": "/%C3%BC", "/%c3%bc": "/%C3%BC",
	})
}

func TestAddress(t *testing.T) {
	for value, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "192.0.2.1:80": "192.0.2.1", "192.0.2.1:65535": "192.0.2.1",
		"2001:db8::1": "2001:db8::1", "[2001:db8::1]": "2001:db8::1", "[2001:DB8::1]:80": "2001:db8::1",
		"::ffff:192.0.2.1": "192.0.2.1", "[::ffff:192.0.2.1]:80": "192.0.2.1", "fe80::1%eth0": "fe80::1", "[fe80::1%eth0]:80": "fe80::1",
		"": "", "key": "", "a:b": "", "1:2": "", "192.0.2.1:": "", "192.0.2.1:http": "", "192.0.2.1:123456": "", ":80": "",
		"[192.0.2.1]:80": "", "[2001:db8::1": "", "2001:db8::1]": "", "[2001:db8::1]80": "", "[]": "", "[": "", "192.0.2.007": "",
		"2001:db8::/32": "", "one.test:80": "", "::": "::",
	} {
		addr, ok := Address(value)
		if ok != (want != "") || ok && addr.String() != want {
			t.Errorf("Address(%q) = %v, %t, want %q", value, addr, ok, want)
		}
	}
}

// TestPlainTakesNoMemory has values that are spelt in the one way.
func TestPlainTakesNoMemory(t *testing.T) {
	for name, f := range map[string]func(){
		"Fold":     func() { Fold("bearer t0ken") },
		"HostPort": func() { HostPort("one.test") },
		"Label":    func() { _ = Label("www.one.test", 1) },
		"Path":     func() { Path("/a/login/") },
		"Part":     func() { Part("/a/login/", 1) },
		"URI":      func() { URI("/a/login/?b=%41") },
		"Address":  func() { Address("192.0.2.1:80") },
		"no Address": func() {
			Address("user:1")
			Address("key")
		},
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s takes memory %v times", name, n)
		}
	}
}

// FuzzPlain: each function is the same when it is applied again, folds what has to be
// folded, and nothing else.
func FuzzPlain(f *testing.F) {
	for _, seed := range []string{
		"", "one.test", "ONE.test.:80", "[2001:db8::1]:80", "[::ffff:192.0.2.1%a]:1", "192.0.2.1:80", "/x/..//./login/", "/l%6fgin?q",
		"\u212ae\u017f\u0130", "\xff.\xfe", "//", "a/..", "[[a", "http:opaque", "/%2e%2e/%2f", ".", "..",
	} {
		f.Add(seed, strings.ToUpper(seed))
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if utf8.ValidString(a) && utf8.ValidString(b) {
			if got, want := Fold(a) == Fold(b), strings.EqualFold(a, b); got != want {
				t.Errorf("%q and %q are the same: %t, want %t", a, b, got, want)
			}
		}
		for name, fold := range map[string]func(string) string{"Fold": Fold, "Path": Path, "URI": URI} {
			if once := fold(a); fold(once) != once {
				t.Errorf("%s(%q) = %q, again %q", name, a, once, fold(once))
			}
		}
		if (HostPort(a) == "") != (a == "" || strings.HasPrefix(a, ":") && HostPort("x"+a) == "x" || strings.HasPrefix(a, "[]:")) {
			t.Errorf("HostPort(%q) = %q", a, HostPort(a))
		}
		if Path(a) == "" {
			t.Errorf("Path(%q) is empty", a)
		}
		if u, err := url.ParseRequestURI(a); err == nil && strings.HasPrefix(a, "/") {
			if again, err := url.ParseRequestURI(URI(a)); err != nil || again.Path != Path(u.Path) || again.RawQuery != u.RawQuery {
				t.Errorf("URI(%q) = %q, which reads as %+v, %v", a, URI(a), again, err)
			}
		}
		addr, ok := Address(a)
		for _, text := range []string{a, strings.TrimSuffix(strings.TrimPrefix(a, "["), "]")} {
			if want, err := netip.ParseAddr(text); err == nil && (want.Is6() || text == a) && (!ok || addr != want.Unmap().WithZone("")) {
				t.Errorf("Address(%q) = %v, %t, want %v", a, addr, ok, want)
			}
		}
		if want, err := netip.ParseAddrPort(a); err == nil && len(a) < 48 && !strings.Contains(a, ":0000") && (!ok || addr != want.Addr().Unmap().WithZone("")) {
			t.Errorf("Address(%q) = %v, %t, want %v", a, addr, ok, want)
		}
		for n := range 3 {
			if strings.Contains(Label(a, n), ".") || strings.Contains(Part(a, n), "/") {
				t.Errorf("part %d of %q is %q, %q", n, a, Label(a, n), Part(a, n))
			}
		}
	})
}
