// Package foreign is the dictionary of the words that other products use: rate limiters, clients of Redis and
// servers. It says what to write here. Nearest finds the word that a misspelt one was probably meant to be.
package foreign

import (
	_ "embed"
	"strings"
)

// Places where a word is written. The places of a word that is the value of an option have the name of the option.
const (
	Option      = "option"       // of sliding_window or a zone
	Settle      = "settle"       // an option of it
	Load        = "load"         // an option of it
	Redis       = "store redis"  // an option of it
	Memory      = "store memory" // an option of it
	Store       = "store"
	Algorithm   = "algorithm"
	Max         = "max" // of a limit
	Placeholder = "placeholder"
	Unit        = "unit" // of a duration
)

// words has a section for each place: lines of words, and what to write for them.
//
//go:embed words.txt
var words string

// meanings has what to write by place and word.
var meanings = func() map[string]map[string]string {
	all := make(map[string]map[string]string)
	each(func(place, word, cure string) {
		if all[place] == nil {
			all[place] = make(map[string]string)
		}
		all[place][word] = cure
	})
	return all
}()

// each calls do with each word.
func each(do func(place, word, cure string)) {
	place := ""
	for line := range strings.SplitSeq(words, "\n") {
		if strings.HasPrefix(line, "[") {
			place = strings.Trim(line, "[]")
		}
		if all, cure, ok := strings.Cut(line, " -> "); ok && line[0] != '#' {
			for word := range strings.FieldsSeq(all) {
				do(place, word, cure)
			}
		}
	}
}

// Meaning returns what to write in place of a word of another product; empty if the word is unknown. Case, `_` and
// `-` make no difference, unless the word has a meaning of its own as it is.
func Meaning(place, word string) string {
	if meaning := meanings[place][word]; meaning != "" {
		return meaning
	}
	return meanings[place][Squash(word)]
}

// Cure says what to write in place of the value of an option that it does not have: that of another product,
// or one that ends as lines do in other languages. It returns "" for other values.
func Cure(place, word string) string {
	if cure := Ending(word); cure != "" {
		return cure
	}
	return Meaning(place, word)
}

// Ending returns the cure for a character that ends a line in other languages, such as a semicolon; "" for other words.
func Ending(word string) string {
	if strings.HasSuffix(word, ";") || strings.HasSuffix(word, ",") {
		return "take the " + word[len(word)-1:] + " off"
	}
	return ""
}
