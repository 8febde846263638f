package docs

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// TestFlags has every command of gatehouse in a page exist, with its flags: also those that TestCommands does not run.
func TestFlags(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, folder := range []string{"tasks", "concepts", "."} {
		for _, p := range pages(t, folder) {
			for _, b := range p.blocks {
				if b.language != "sh" && b.language != "console" {
					continue
				}
				for line := range strings.SplitSeq(strings.ReplaceAll(b.text, "\\\n", " "), "\n") {
					if b.language == "console" && !strings.HasPrefix(line, "$ ") {
						continue
					}
					for command := range strings.SplitSeq(line, "|") {
						words := strings.Fields(strings.TrimPrefix(strings.TrimSpace(command), "$ "))
						if len(words) < 2 || filepath.Base(words[0]) != "gatehouse" {
							continue
						}
						seen++
						if problem := unknownFlag(t, words[1:]); problem != "" {
							t.Errorf("%s: gatehouse %s: %s", p.place(b.first), strings.Join(words[1:], " "), problem)
						}
					}
				}
			}
		}
	}
	const least = 50
	if seen < least {
		t.Errorf("the pages show %d commands", seen)
	}
}

// unknownFlag returns what the program does not have of a command.
func unknownFlag(t *testing.T, words []string) string {
	t.Helper()
	first := slices.IndexFunc(words, func(word string) bool { return strings.HasPrefix(word, "-") })
	if first < 0 {
		first = len(words)
	}
	help, err := gatehouse.Run(t.Context(), append(slices.Clone(words[:first]), "--help")...)
	if err != nil {
		return err.Error()
	}
	for _, word := range words {
		flag, _, _ := strings.Cut(word, "=")
		var option string
		switch {
		case strings.HasPrefix(flag, "--") && len(flag) > 2:
			option = `(-\w, )?` + regexp.QuoteMeta(flag) + `\b`
		case strings.HasPrefix(flag, "-") && len(flag) > 1:
			option = regexp.QuoteMeta(flag[:2]) + `, --`
		case strings.HasPrefix(flag, "#"), strings.HasPrefix(flag, ">"):
			return "" // a comment, or a redirection
		default:
			continue
		}
		if !regexp.MustCompile(`(?m)^ +` + option).MatchString(help) {
			return "there is no flag " + flag
		}
	}
	return ""
}
