package config_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// TestDecodeScope: a file has one scope, every member of which is understood, since one that is not could have narrowed it.
func TestDecodeScope(t *testing.T) {
	t.Parallel()
	rule := v1alpha1.ScopeRule{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"get"}}
	for name, test := range map[string]struct {
		text string
		want v1alpha1.TokenScope
		says []string
	}{
		"rules":             {text: "rules:\n- {apiGroups: [apps], resources: [deployments], verbs: [get]}\n", want: v1alpha1.TokenScope{Rules: []v1alpha1.ScopeRule{rule}}},
		"JSON":              {text: `{"rules":[{"apiGroups":["apps"],"resources":["deployments"],"verbs":["get"]}],"namespaces":["shop"]}`, want: v1alpha1.TokenScope{Rules: []v1alpha1.ScopeRule{rule}, Namespaces: []string{"shop"}}},
		"a name":            {text: "---\nname: view\n", want: v1alpha1.TokenScope{Name: "view"}},
		"empty":             {text: "# rules:\n", says: []string{"scope.yaml: has 0 documents, must have one"}},
		"two documents":     {text: "name: view\n---\nname: edit\n", says: []string{"scope.yaml: has 2 documents, must have one"}},
		"a list":            {text: "- verbs: [get]\n", says: []string{"scope.yaml: is not a mapping"}},
		"a misspelt member": {text: "rules:\n- {apiGroup: [apps], verb: [get]}\n", says: []string{`scope.yaml: rules[0].apiGroup: unknown field (hint: did you mean "apiGroups"?)`, `rules[0].verb: unknown field (hint: did you mean "verbs"?)`}},
		"null narrows less": {text: "rules:\n- {apiGroups: [apps], resources: [deployments], verbs: [get], resourceNames: null, namespaces: }\n", says: []string{"rules[0].resourceNames: ", "rules[0].namespaces: "}},
		"a string for all":  {text: "rules:\n- {apiGroups: apps, resources: [deployments], verbs: [get]}\n", says: []string{"rules[0].apiGroups: "}},
		"a member twice":    {text: "name: view\nname: edit\n", says: []string{"is given twice"}},
		"a whole document":  {text: "apiVersion: gatehouse.dev/v1alpha1\nkind: AccessToken\nspec: {sha256: hush}\n", says: []string{"apiVersion: unknown field", "kind: unknown field", "spec: unknown field"}},
		"an alias bomb":     {text: "a: &a [x,x,x,x,x,x,x,x,x]\n" + strings.Repeat("b: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n", 2), says: []string{"is given twice"}},
		"no UTF-8":          {text: "name: \xff\n", says: []string{"the file is not UTF-8"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := config.DecodeScope("scope.yaml", []byte(test.text))
			if len(test.says) == 0 {
				if err != nil || !reflect.DeepEqual(*got, test.want) {
					t.Errorf("%+v, %v", got, err)
				}
				return
			}
			for _, says := range test.says {
				if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "hush") {
					t.Errorf("got %v, want %q", err, says)
				}
			}
		})
	}
}
