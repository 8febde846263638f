package review_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/util/net"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// passedOn is what the API server passes on of the warnings of a request: each
// text once, none that is no header; above 4,096 runes each is cut to 256, and
// what comes behind that many runes is dropped
// (k8s.io/apiserver/pkg/endpoints/filters/warning.go).
func passedOn(warnings []string) []string {
	var all []string
	total := 0
	for _, text := range warnings {
		if text == "" || slices.Contains(all, text) {
			continue
		}
		if _, err := net.NewWarningHeader(299, "", text); err != nil {
			continue
		}
		all = append(all, text)
		total += utf8.RuneCountInString(text)
	}
	if total <= 4096 {
		return all
	}
	var out []string
	total = 0
	for _, text := range all {
		if total >= 4096 {
			break
		}
		text = string([]rune(text)[:min(utf8.RuneCountInString(text), 256)])
		total += utf8.RuneCountInString(text)
		out = append(out, text)
	}
	return out
}

// answeredWarnings are the warnings of an answer, none of which the API server may
// change or drop.
func answeredWarnings(t testing.TB, warnings []string) []string {
	t.Helper()
	response := admission.Allowed("").WithWarnings(warnings...)
	answer, err := review.AppendAdmission(nil, uid, &response)
	if err != nil {
		t.Fatal(err)
	}
	var r admissionv1.AdmissionReview
	if err := json.Unmarshal(answer, &r); err != nil {
		t.Fatalf("answer %s: %v", answer, err)
	}
	if got := passedOn(r.Response.Warnings); !slices.Equal(got, r.Response.Warnings) {
		t.Errorf("of the warnings\n%q\nthe API server passes on\n%q", r.Response.Warnings, got)
	}
	return r.Response.Warnings
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	// many are n different texts of so many runes.
	many := func(n, runes int) []string {
		out := make([]string, n)
		for i := range out {
			number := fmt.Sprintf("%d ", i)
			out[i] = number + strings.Repeat("ü", runes-len(number))
		}
		return out
	}
	cut := func(text string) string { return string([]rune(text)[:255]) + "…" }
	long := many(50, 1000)
	for _, tc := range []struct {
		name     string
		warnings []string
		want     []string
	}{
		{"none", nil, nil},
		{"one", []string{"a"}, []string{"a"}},
		{"one as long as all may be", many(1, 4096), many(1, 4096)},
		{"one that is longer", many(1, 4097), []string{cut(many(1, 4097)[0])}},
		{"one that is longer by far", many(1, 1<<20), []string{cut(many(1, 1<<20)[0])}},
		{"more than ten that fit", many(40, 100), many(40, 100)},
		{"many short ones", many(800, 5), many(800, 5)},
		{"all fit once the longest is cut", slices.Concat(many(1, 4000), many(20, 150)), slices.Concat([]string{cut(many(1, 4000)[0])}, many(20, 150))},
		{"many long ones", long, []string{
			cut(long[0]), cut(long[1]), cut(long[2]), cut(long[3]), cut(long[4]), cut(long[5]), cut(long[6]), cut(long[7]),
			cut(long[8]), cut(long[9]), cut(long[10]), cut(long[11]), cut(long[12]), cut(long[13]), cut(long[14]), "… and 35 more warnings",
		}},
		{"sixteen that fill the room without a note", many(16, 256), many(16, 256)},
		{"one more", many(17, 256), append(many(15, 256), "… and 2 more warnings")},
		{"what has been bounded already", append(many(15, 256), "… and 2 more warnings"), append(many(15, 256), "… and 2 more warnings")},
		{"one that is given twice", []string{"a", "b", "a"}, []string{"a", "b"}},
		{"two that are one when they can be shown", []string{"a\x00", "a\x01"}, []string{"a "}},
		{"an empty one", []string{"", "a"}, []string{"a"}},
		{"nothing but an empty one", []string{""}, nil},
		{"two that are one when they are cut", []string{strings.Repeat("x", 3000) + "1", strings.Repeat("x", 3000) + "2", "y"}, []string{cut(strings.Repeat("x", 3000)), "y", "… and 1 more warning"}},
		{"control characters", []string{"a\nb\x7fc\u0085d\xff"}, []string{"a b c d "}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got := answeredWarnings(t, tc.warnings); !slices.Equal(got, tc.want) {
				t.Errorf("warnings are\n%q, want\n%q", got, tc.want)
			}
		})
	}
}

// FuzzWarnings wants everything counted that is not shown, and nothing shown that
// the API server changes.
func FuzzWarnings(f *testing.F) {
	f.Add(50, 1000, "ü\x00")
	f.Add(17, 256, "x")
	f.Add(3, 4096, "\n")
	f.Fuzz(func(t *testing.T, n, repeat int, text string) {
		if n < 0 || n > 5000 || repeat < 0 || repeat > 5000 || len(text) > 100 || len(text)*repeat*n > 1<<22 {
			return
		}
		warnings := make([]string, n)
		for i := range warnings {
			warnings[i] = fmt.Sprintf("%d %s", i, strings.Repeat(text, repeat))
		}
		got := answeredWarnings(t, warnings)
		missing := 0
		if len(got) > 0 {
			if _, err := fmt.Sscanf(got[len(got)-1], "… and %d more warning", &missing); err == nil {
				got = got[:len(got)-1]
			}
		}
		if len(got)+missing != n {
			t.Errorf("of %d warnings %d are shown and %d counted", n, len(got), missing)
		}
	})
}
