package pattern

import "testing"

func TestMatchWildcard(t *testing.T) {
	for _, tt := range []struct {
		pattern, text string
		want          bool
	}{
		{"a*", "ab", true},
		{"a?", "a", false},
		{"*.b", "axb", false},
		{`*\*`, `\`, true},
		{`\.*`, `\.b`, true},
		{"[x]{2}^$*", "[x]{2}^$", true},
		{"*", "a\nb", true},
	} {
		if got := MatchWildcard(tt.pattern, tt.text); got != tt.want {
			t.Errorf("%q matches %q: %v", tt.pattern, tt.text, got)
		}
	}
}
