package e2e_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// unclear are words that hide the subject of a sentence, or are not those of the trade. A _ is white
// space, also with the end of a line and the beginning of a comment. Brackets keep this file out.
const unclear = `[s]tands|is_none|are_none|so_many|as_many|as_ever|[l]est|by_whomever|of_ours|to_nothing|[l]ikewise|[m]eanwhile|has_to_say|is_for`

// TestWords looks for unclear words in code, comments, errors and documents.
func TestWords(t *testing.T) {
	word := regexp.MustCompile(`(?i)\b(` + strings.ReplaceAll(unclear, "_", `[\s/*|-]+`) + `)\b`)
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path == "CHANGELOG.md" || !slices.Contains([]string{".go", ".lua", ".md"}, filepath.Ext(path)) {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, at := range word.FindAllIndex(text, -1) {
			t.Errorf("%s:%d: %q: write it in other words", path, 1+strings.Count(string(text[:at[0]]), "\n"), text[at[0]:at[1]])
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
