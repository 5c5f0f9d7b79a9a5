package answer

import (
	"testing"

	problems "schneider.vip/problem"
)

// The body is what a library for problem details would have written.
func TestProblemsAsTheLibraryWritesThem(t *testing.T) {
	for _, p := range []Problem{
		{Detail: "Try again in 5 s.", RetryAfter: 5, Status: 429, Title: "Rate limit exceeded", Kind: ProblemQuota, Violated: []string{"a:1s", "b.c"}},
		{Detail: "Never.", Status: 503, Title: "Rate limit exceeded", Kind: ProblemQuota, Violated: []string{"a"}},
		{Detail: "Later.", Status: 503, Title: "Temporarily unavailable", Kind: ProblemCapacity},
	} {
		options := []problems.Option{problems.Type(p.Kind), problems.Title(p.Title), problems.Status(p.Status), problems.Detail(p.Detail)}
		if p.RetryAfter > 0 {
			options = append(options, problems.Custom("retry_after", p.RetryAfter))
		}
		if p.Violated != nil {
			options = append(options, problems.Custom("violated-policies", p.Violated))
		}
		if got, want := string(p.append(nil)), problems.New(options...).JSONString(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if ContentType != problems.ContentTypeJSON {
		t.Errorf("got %s, want %s", ContentType, problems.ContentTypeJSON)
	}
}
