package manifest

import (
	"regexp"
	"strings"
)

var comment = regexp.MustCompile(`# comment \d+`)

func lines(text []byte) []string {
	return strings.Split(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n")
}
