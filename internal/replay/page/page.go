// Package page writes the report of a replay or of a suggestion as one HTML page, with plots. The page has no script and
// asks for nothing: it can be mailed, and opened anywhere. It does not import Caddy.
package page

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"io"
	"strings"
)

//go:embed page.html
var document string

// Document is what a page shows. Its texts may be anything: the page escapes them.
type Document struct {
	Title    string
	About    string
	Facts    []Fact
	Notes    []string
	Sections []Section
}

// Fact is a figure with its name.
type Fact struct {
	Name  string
	Value string
	Note  string
	Bad   bool // in red
}

// Section is a part of a page: a zone, for example.
type Section struct {
	Title  string
	About  string
	Facts  []Fact
	Plots  []Plot
	Code   string  // beside the plots
	Beside []Table // beside the plots: narrow tables
	Tables []Table
}

// Table is a table. All columns but the first have numbers.
type Table struct {
	Title string
	Head  []string
	Rows  [][]string
}

// policy is the Content-Security-Policy of the page: nothing but its own style.
func policy() string {
	_, rest, _ := strings.Cut(document, "<style>")
	style, _, _ := strings.Cut(rest, "</style>")
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; img-src data:; base-uri 'none'; form-action 'none'"
}

// parsed is the page. Its style has no actions, so that the hash of the policy is that of what is written.
var parsed = template.Must(template.New("page").Funcs(template.FuncMap{"policy": policy}).Parse(document))

// Write writes a page.
func Write(w io.Writer, d Document) error {
	return parsed.Execute(w, struct {
		Document
		Sections []section
	}{d, drawnSections(d.Sections)})
}

// section is a Section whose plots are drawn.
type section struct {
	Section
	Plots []drawing
}

func drawnSections(sections []Section) []section {
	var all []section
	for _, s := range sections {
		v := section{Section: s}
		for i := range s.Plots {
			if d, ok := s.Plots[i].draw(); ok {
				v.Plots = append(v.Plots, d)
			}
		}
		all = append(all, v)
	}
	return all
}
