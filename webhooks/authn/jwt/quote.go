package jwt

import (
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/truncate"
)

// maxText bounds a quoted string of a token, in bytes.
const maxText = 120 + len("…")

func refuse(reason Reason, detail string) *Refusal { return &Refusal{Reason: reason, Detail: detail} }

// quote returns s in quotes, shortened if it is long.
func quote(s string) string { return strconv.Quote(truncate.Bytes(s, maxText)) }

// quoteAll returns all in quotes, with commas between.
func quoteAll(all []string) string {
	quoted := make([]string, len(all))
	for i, s := range all {
		quoted[i] = quote(s)
	}
	return strings.Join(quoted, ", ")
}

// bounded returns a string that cannot break a line, shortened if it is long.
func bounded(s string) string {
	s = truncate.Bytes(s, maxText)
	if strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) {
		quoted := strconv.Quote(s)
		return quoted[1 : len(quoted)-1]
	}
	return s
}

// maxError bounds the text of an error, in bytes: it has whole expressions, and may have
// claims.
const maxError = 500

// boundedError returns the text of an error on one line, shortened if it is long.
func boundedError(err error) string {
	text := strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return !strconv.IsPrint(r) }), " ")
	return truncate.Bytes(text, maxError)
}
