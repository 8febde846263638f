package truncate_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/internal/truncate"
)

func TestTruncate(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		text         string
		most         int
		bytes, runes string
	}{
		{"", 5, "", ""},
		{"hello", 5, "hello", "hello"},
		{"hello!", 5, "he…", "hell…"},
		{"ééééé", 5, "é…", "ééééé"},
		{"éééééé", 5, "é…", "éééé…"},
		{"€€€", 8, "€…", "€€€"},
		{"hello", 3, "…", "he…"},
		{"hello", 1, "…", "…"},
		{"\x80\x80\x80\x80\x80\x80", 4, "…", "\x80\x80\x80…"},
	} {
		if got := truncate.Bytes(tc.text, tc.most); got != tc.bytes {
			t.Errorf("Bytes(%q, %d) = %q, want %q", tc.text, tc.most, got, tc.bytes)
		}
		if got := truncate.Runes(tc.text, tc.most); got != tc.runes {
			t.Errorf("Runes(%q, %d) = %q, want %q", tc.text, tc.most, got, tc.runes)
		}
	}
}

func TestIsPlain(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"": true, "a ~!": true, "a\nb": false, "\x7f": false, "\x1b[0m": false, "é": false, "\x80": false} {
		if got := truncate.IsPlain(text); got != want {
			t.Errorf("IsPlain(%q) = %t", text, got)
		}
	}
}

func FuzzTruncate(f *testing.F) {
	f.Add("a text with é and €", 7)
	f.Fuzz(func(t *testing.T, text string, most int) {
		most = max(most, len("…"))
		short, few := truncate.Bytes(text, most), truncate.Runes(text, most)
		if len(short) > most || utf8.RuneCountInString(few) > most {
			t.Errorf("Bytes(%q, %d) = %q, Runes = %q", text, most, short, few)
		}
		for _, got := range []string{short, few} {
			if front, cut := strings.CutSuffix(got, "…"); !strings.HasPrefix(text, front) || !cut && got != text || utf8.ValidString(text) && !utf8.ValidString(got) {
				t.Errorf("of %q at most %d are %q", text, most, got)
			}
		}
	})
}
