package template_test

import (
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	celbound "github.com/gatehouse-dev/gatehouse/webhooks/cel/bound"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/template"
)

func TestResolve(t *testing.T) {
	t.Parallel()
	s, found := environment(t).Scope(new(celbound.Budget), "proxy", []v1alpha1.SidecarParameter{
		{Name: "a", Type: v1alpha1.IntegerParameter, Default: text("1"), Maximum: text("10")},
		{Name: "b", Type: v1alpha1.StringParameter, Default: text("x")},
		{Name: "c", Type: v1alpha1.StringParameter, OnInvalid: v1alpha1.SkipInvalid},
	}, nil)
	if len(found) > 0 {
		t.Fatal(found)
	}
	if !s.HasParameter("a") || s.HasParameter("z") || !slices.Equal(s.ParameterNames(), []string{"a", "b", "c"}) {
		t.Errorf("the parameters are %q", s.ParameterNames())
	}
	missing := template.Invalid{Parameter: "c", Allowed: "a string of at most 1024 characters, without control characters", Skip: true}
	for name, tc := range map[string]struct {
		pod, namespace map[string]string
		want           []template.ParamValue
		invalid        []template.Invalid
	}{
		"nobody says anything": {
			nil, nil, []template.ParamValue{{"a", "1", template.FromDefault}, {"b", "x", template.FromDefault}}, []template.Invalid{missing},
		},
		"each for itself": {
			map[string]string{"a": "2"},
			map[string]string{"a": "3", "b": "y", "c": "z"},
			[]template.ParamValue{{"a", "2", template.FromPod}, {"b", "y", template.FromNamespace}, {"c", "z", template.FromNamespace}},
			nil,
		},
		"an empty text is one": {
			map[string]string{"b": "", "c": ""},
			map[string]string{"b": "y"},
			[]template.ParamValue{{"a", "1", template.FromDefault}, {"b", "", template.FromPod}, {"c", "", template.FromPod}},
			nil,
		},
		"an invalid one does not give way": {
			map[string]string{"a": "11", "c": "z"},
			map[string]string{"a": "3", "b": "y\n"},
			[]template.ParamValue{{"c", "z", template.FromPod}},
			[]template.Invalid{
				{Parameter: "a", Text: "11", From: template.FromPod, Allowed: "an integer of at most 10"},
				{Parameter: "b", Text: "y\n", From: template.FromNamespace, Allowed: "a string of at most 1024 characters, without control characters"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			params, invalid := s.Resolve(given(tc.pod), given(tc.namespace))
			if !slices.Equal(params.All(), tc.want) || !slices.Equal(invalid, tc.invalid) {
				t.Errorf("got  %v %v\nwant %v %v", params.All(), invalid, tc.want, tc.invalid)
			}
		})
	}
	if params, invalid := s.Resolve(nil, nil); len(params.All()) != 2 || len(invalid) != 1 {
		t.Errorf("without anybody to ask: %v %v", params.All(), invalid)
	}
}

// Each type accepts its own form and nothing else, and says which it is.
func TestParameterTypes(t *testing.T) {
	t.Parallel()
	length, items := int32(5), int32(2)
	for name, tc := range map[string]struct {
		parameter v1alpha1.SidecarParameter
		allowed   string
		good, bad []string
	}{
		"string": {
			v1alpha1.SidecarParameter{Type: v1alpha1.StringParameter},
			"a string of at most 1024 characters, without control characters",
			[]string{"", " a ", `"'{}${x}<>&`, strings.Repeat("é", 1024), "\u2028"},
			[]string{"a\nb", "\x00", "\x7f", "\u0085", "\x1b[2J", strings.Repeat("a", 1025), "\xff", strings.Repeat("a", 1<<20)},
		},
		"string with limits": {
			v1alpha1.SidecarParameter{Type: v1alpha1.StringParameter, MaxLength: &length, Pattern: "a|b+"},
			`a string of at most 5 characters that matches "a|b+", without control characters`,
			[]string{"a", "bbbbb"},
			[]string{"", "ab", "bbbbbb", "xa", "ax", "a\n"},
		},
		"string of several": {
			v1alpha1.SidecarParameter{Type: v1alpha1.StringParameter, Enum: []string{"a", "b c"}},
			`one of "a", "b c"`,
			[]string{"a", "b c"},
			[]string{"", "A", "a ", "b"},
		},
		"enum": {
			v1alpha1.SidecarParameter{Type: v1alpha1.EnumParameter, Enum: []string{"a", ""}}, `one of "a", ""`, []string{"a", ""}, []string{"b", " "},
		},
		"integer": {
			v1alpha1.SidecarParameter{Type: v1alpha1.IntegerParameter},
			"an integer",
			[]string{"0", "-5", "+5", "007", "9223372036854775807", "-9223372036854775808"},
			[]string{"", " 1", "1 ", "1.0", "1e3", "0x1", "1_000", "9223372036854775808", "true", "１", strings.Repeat("0", 100)},
		},
		"integer with bounds": {
			v1alpha1.SidecarParameter{Type: v1alpha1.IntegerParameter, Minimum: text("-1"), Maximum: text("10")},
			"an integer from -1 to 10",
			[]string{"-1", "10"},
			[]string{"-2", "11"},
		},
		"boolean": {
			v1alpha1.SidecarParameter{Type: v1alpha1.BooleanParameter},
			"true or false",
			[]string{"true", "false"},
			[]string{"", "True", "yes", "1", "0", "t", " true"},
		},
		"quantity": {
			v1alpha1.SidecarParameter{Type: v1alpha1.QuantityParameter},
			"a quantity such as 100m or 64Mi",
			[]string{"1", "100m", "64Mi", "1.5Gi", "1e3", "-1", "1e99"},
			[]string{"", "1 Mi", "1mi", "a", "1e2147483647", "1e-100", "1E+999999", strings.Repeat("1", 65)},
		},
		"quantity with bounds": {
			v1alpha1.SidecarParameter{Type: v1alpha1.QuantityParameter, Minimum: text("100m"), Maximum: text("2")},
			"a quantity such as 100m or 64Mi, from 100m to 2",
			[]string{"100m", "0.1", "2000m", "2"},
			[]string{"99m", "2001m", "1Ki", "1e99"},
		},
		"quantity with a maximum": {
			v1alpha1.SidecarParameter{Type: v1alpha1.QuantityParameter, Maximum: text("2")}, "a quantity such as 100m or 64Mi, at most 2", []string{"-1"}, []string{"3"},
		},
		"duration": {
			v1alpha1.SidecarParameter{Type: v1alpha1.DurationParameter, Minimum: text("1s")},
			"a duration such as 90s or 5m, at least 1s",
			[]string{"1s", "1000ms", "1h30m", "2562047h"},
			[]string{"", "1", "1 s", "999ms", "-1s", "1d", "9999999h"},
		},
		"port": {
			v1alpha1.SidecarParameter{Type: v1alpha1.PortParameter}, "a port from 1 to 65535", []string{"1", "65535"}, []string{"", "0", "65536", "-1", "http", "80.0"},
		},
		"port with bounds": {
			v1alpha1.SidecarParameter{Type: v1alpha1.PortParameter, Minimum: text("1024")}, "a port from 1024 to 65535", []string{"1024"}, []string{"1023"},
		},
		"list": {
			v1alpha1.SidecarParameter{Type: v1alpha1.ListParameter, MaxItems: &items, MaxLength: &length, Pattern: "[a-z]+"},
			`a list such as a,b of at most 2 strings, each of 1 to 5 characters that matches "[a-z]+"`,
			[]string{"", " ", "a", "a,b", " a , b "},
			[]string{",", "a,", "a,,b", "a,b,c", "abcdef", "A", "a\n,b\x00", strings.Repeat(",", 1<<20)},
		},
		"list of several": {
			v1alpha1.SidecarParameter{Type: v1alpha1.ListParameter, Enum: []string{"a", "b"}},
			`a list such as a,b of at most 64 strings, each one of "a", "b"`,
			[]string{"a,a,b"},
			[]string{"c", "a,c"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.parameter.Name = "p"
			s, found := environment(t).Scope(new(celbound.Budget), "proxy", []v1alpha1.SidecarParameter{tc.parameter}, nil)
			if len(found) > 0 {
				t.Fatal(found)
			}
			for _, value := range tc.good {
				params, invalid := s.Resolve(given(map[string]string{"p": value}), nil)
				if len(invalid) > 0 || len(params.All()) != 1 || params.All()[0].Text != value {
					t.Errorf("%q: %v %v", value, params.All(), invalid)
				}
			}
			for _, value := range tc.bad {
				params, invalid := s.Resolve(given(map[string]string{"p": value}), nil)
				want := []template.Invalid{{Parameter: "p", Text: value, From: template.FromPod, Allowed: tc.allowed}}
				if !slices.Equal(invalid, want) || len(params.All()) > 0 {
					t.Errorf("%.100q: %+v %v", value, invalid, params.All())
				}
			}
		})
	}
}

// FuzzResolve: whatever an annotation says, a value that is accepted is of the
// accepted form, and a rendered text stays one.
func FuzzResolve(f *testing.F) {
	for _, seed := range []string{"", "1", "true", "100m", "5s", "a,b", "\n", `","x":"`, "1e2147483647", "${params.a}", "\x00", "\u2028", "9223372036854775808", "info"} {
		f.Add(seed)
	}
	s, found := environment(f).Scope(new(celbound.Budget), "proxy", parameters(), nil)
	if len(found) > 0 {
		f.Fatal(found)
	}
	trees := renderings(f, s)
	f.Fuzz(func(t *testing.T, value string) {
		for _, name := range s.ParameterNames() {
			params, invalid := s.Resolve(given(map[string]string{name: value}), nil)
			if len(invalid) > 0 {
				if len(invalid) != 1 || invalid[0].Parameter != name || invalid[0].Allowed == "" || len(params.All()) != len(s.ParameterNames())-1 {
					t.Fatalf("%v %v", invalid, params.All())
				}
				continue
			}
			if !utf8.ValidString(value) || name == "image" && strings.ContainsFunc(value, unicode.IsControl) {
				t.Fatalf("%q is accepted for %s", value, name)
			}
			rendered(t, trees[name], params, value)
		}
	})
}
