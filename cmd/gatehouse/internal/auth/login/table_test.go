package login

import "testing"

// TestTable checks which entries go: what is over, and the one that was not used
// for longest, but none that is in use.
func TestTable(t *testing.T) {
	t.Parallel()
	var gone []string
	entries := table[string, string]{
		most: 3,
		used: func(v *string) bool { return *v == "used" },
		over: func(v *string) bool { return *v == "over" },
		gone: func(key string, _ *string) { gone = append(gone, key) },
	}
	for _, step := range []struct{ key, value, gone string }{
		{"a", "used", ""},
		{"b", "", ""},
		{"c", "", ""},
		{"b", "", ""},
		{"d", "over", "c"},
		{"b", "", ""},
		{"e", "", "d"},
		{"f", "", "b"},
	} {
		gone = nil
		*entries.use(step.key) = step.value
		if got := append(gone, "")[0]; got != step.gone || len(gone) > 1 || entries.get(step.key) == nil {
			t.Errorf("with %s, %q go, want %q", step.key, gone, step.gone)
		}
	}
	if entries.get("a") == nil {
		t.Error("an entry that is in use has gone")
	}
}
