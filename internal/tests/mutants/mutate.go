package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// mutant is a file of lua/ with one change.
type mutant struct {
	file   string
	line   int
	change string // from what to what
	text   string // of the file, changed

	scripts map[string]string // those of package lua, with the file, by their names in originals
}

// String names the mutant: the same for as long as its line stays as it is.
func (m mutant) String() string { return fmt.Sprintf("%s:%d: %s", m.file, m.line, m.change) }

// swaps are what takes the place of an operator or a name.
var swaps = map[string]string{
	"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "~=", "~=": "==",
	"+": "-", "-": "+", "*": "/", "/": "*", "%": "*",
	"and": "or", "or": "and", "not": "",
	"min": "max", "max": "min", "ceil": "floor", "floor": "ceil", "true": "false", "false": "true",
}

// token matches comments, strings, names, numbers and operators, in this order.
var token = regexp.MustCompile(`--[^\n]*|'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|[A-Za-z_]\w*|\d+(?:\.\d+)?|[<>=~]=|\.\.\.?|[-+*/%<>^#=(){}\[\].,:;]`)

// mutate returns the mutants of a file.
func mutate(file, text string) (all []mutant) {
	add := func(at, end int, by string) {
		line := 1 + strings.Count(text[:at], "\n")
		begin := strings.LastIndexByte(text[:at], '\n') + 1
		old, _, _ := strings.Cut(text[begin:], "\n")
		changed := text[:at] + by + text[end:]
		now, _, _ := strings.Cut(changed[begin:], "\n")
		change := fmt.Sprintf("`%s` → `%s`", strings.TrimSpace(old), strings.TrimSpace(now))
		all = append(all, mutant{file: file, line: line, change: change, text: changed})
	}
	before := ""
	for _, place := range token.FindAllStringIndex(text, -1) {
		word := text[place[0]:place[1]]
		switch {
		case strings.HasPrefix(word, "--"):
			continue // a comment is nothing that an operator could follow
		case word == "-" && !ends(before): // a sign
			add(place[0], place[1], "")
		case swapped(word, strings.HasPrefix(text[place[1]:], "(")):
			add(place[0], place[1], swaps[word])
		case word[0] >= '0' && word[0] <= '9':
			if n, err := strconv.Atoi(word); err == nil {
				add(place[0], place[1], strconv.Itoa(n+1))
				if n > 0 {
					add(place[0], place[1], strconv.Itoa(n-1))
				}
			}
		}
		before = word
	}
	at := 0
	for line := range strings.Lines(text) {
		if statement(line) {
			indent := len(line) - len(strings.TrimLeft(line, " "))
			add(at+indent, at+len(line)-1, "")
		}
		at += len(line)
	}
	return all
}

// swapped reports whether something takes the place of a word: of a function where it is called.
func swapped(word string, called bool) bool {
	switch word {
	case "min", "max", "ceil", "floor":
		return called
	}
	return swaps[word] != "" || word == "not"
}

// ends reports whether a word ends an operand, so that an operator can follow.
func ends(word string) bool {
	switch word {
	case "", "return", "and", "or", "not", "then", "do", "else", "if", "elseif", "while", "until", "in":
		return false
	case ")", "]", "}", "...":
		return true
	}
	return !strings.ContainsAny(word[:1], "-+*/%<>^#=~({[.,:;")
}

var (
	assignment  = regexp.MustCompile(`^ *[a-z_][\w.\[\], *+-]* = [^=]`)
	invocation  = regexp.MustCompile(`^ *[a-z_][\w.]*\(.*\)$`)
	conditional = regexp.MustCompile(`^ *if .* then .* end$`)
)

// statement reports whether a line is a whole statement that can be left out.
func statement(line string) bool {
	line, _, _ = strings.Cut(strings.TrimRight(line, "\n"), " --")
	if strings.HasPrefix(strings.TrimSpace(line), "local ") {
		return false
	}
	if !assignment.MatchString(line) && !invocation.MatchString(line) && !conditional.MatchString(line) {
		return false
	}
	opens, depth := 0, 0
	for _, word := range token.FindAllString(line, -1) {
		switch word {
		case "(", "{", "[":
			depth++
		case ")", "}", "]":
			depth--
		case "function", "if", "do":
			opens++
		case "end":
			opens--
		}
	}
	return opens == 0 && depth == 0 && !strings.HasSuffix(strings.TrimSpace(line), ",")
}
