package diagnostic_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

func TestSortReadsTheNumberOfADocument(t *testing.T) {
	t.Parallel()
	list := diagnostic.List{
		{Source: "b.yaml", Message: "5"},
		{Source: "a.yaml#10", Message: "4"},
		{Source: "a.yaml#2", Object: "B", Message: "3"},
		{Source: "a.yaml#2", Object: "A", Field: "b", Message: "2"},
		{Source: "a.yaml#2", Object: "A", Field: "a", Message: "1"},
	}
	list.Sort()
	for i, f := range list {
		if want := string(rune('1' + i)); f.Message != want {
			t.Errorf("diagnostic %d is %s, want %s", i, f.Message, want)
		}
	}
}

func TestErr(t *testing.T) {
	t.Parallel()
	warning := diagnostic.Diagnostic{Severity: diagnostic.Warning, Message: "odd"}
	problem := diagnostic.Diagnostic{
		Severity: diagnostic.Error, Source: "a.yaml", Object: "Kind/name", Field: "spec.x",
		Message: `"1" is not allowed`, Hint: "write 2",
	}
	if err := (diagnostic.List{warning}).Err(); err != nil {
		t.Errorf("warnings alone are an error: %v", err)
	}
	err := diagnostic.List{warning, problem}.Err()
	if want := "warning: odd\na.yaml: Kind/name: spec.x: \"1\" is not allowed (hint: write 2)"; err == nil || err.Error() != want {
		t.Errorf("Err() = %v, want %s", err, want)
	}
}

// TestTokensAreNotShown puts a token wherever a diagnostic can hold text.
func TestTokensAreNotShown(t *testing.T) {
	t.Parallel()
	const secret = "gatehouse_ci_unq3zlo745dva5breddgfhhzitomcrrzpxtpo67a7xgobgi"
	f := diagnostic.Diagnostic{
		Severity: diagnostic.Error, Source: secret + ".yaml", Object: "AccessToken/" + secret, Field: "spec." + secret,
		Message: `"` + secret + `" is not a name; ` + secret, Hint: "remove " + secret,
	}
	asJSON, err := json.Marshal(diagnostic.List{f})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{f.String(), diagnostic.List{f}.Error(), string(asJSON)} {
		if strings.Contains(text, "unq3zlo745") || strings.Count(text, "gatehouse_…") != 6 {
			t.Errorf("shown is %s", text)
		}
	}
}

func TestNearest(t *testing.T) {
	t.Parallel()
	names := []string{"containers", "initContainers", "volumes"}
	for word, want := range map[string]string{
		"container": "containers", "contaniers": "containers", "CONTAINERS": "containers", "initcontainers": "initContainers",
		"volume": "volumes", "x": "", "": "", "ports": "", strings.Repeat("volumes", 100): "",
	} {
		if got, ok := diagnostic.Nearest(word, names...); got != want || ok != (want != "") {
			t.Errorf("nearest(%.20q) = %q, %v, want %q", word, got, ok, want)
		}
	}
}

func TestNameHint(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ word, names, want string }{
		{"registrys", "limits registries", `did you mean "registries"?`},
		{"registry", "limits registries", `did you mean "registries"?`},
		{"images", "limits shop-images", `did you mean "shop-images"?`},
		{"pod-security-x", "limits pod-security-baseline", `did you mean "pod-security-baseline"?`},
		{"images", "limits registries", `there is "limits", "registries"`},
		{"images", "aa bb cc dd ee ff", ""},
		{"images", "", ""},
	} {
		if got := diagnostic.NameHint(tc.word, strings.Fields(tc.names)...); got != tc.want {
			t.Errorf("%s of %s: got %q, want %q", tc.word, tc.names, got, tc.want)
		}
	}
}

func TestCode(t *testing.T) {
	t.Parallel()
	f := diagnostic.Diagnostic{Severity: diagnostic.Warning, Object: "Kind/name", Message: "odd", Hint: "make it even", Code: "odd-number"}
	if got, want := f.String(), "Kind/name: odd (hint: make it even) [odd-number]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	asJSON, err := json.Marshal(f)
	if want := `{"severity":"warning","object":"Kind/name","message":"odd","hint":"make it even","code":"odd-number"}`; err != nil || string(asJSON) != want {
		t.Errorf("got %s, %v, want %s", asJSON, err, want)
	}
}
