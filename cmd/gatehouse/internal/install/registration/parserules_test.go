package registration

import (
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// ruleText is a rule in one line.
func ruleText(r admissionregistrationv1.RuleWithOperations) string {
	var operations []string
	for _, o := range r.Operations {
		operations = append(operations, string(o))
	}
	return fmt.Sprintf("%s of %s in %q %s, %s", strings.Join(operations, " "), r.Resources[0], r.APIGroups[0], r.APIVersions[0], *r.Scope)
}

func TestParseRules(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"services":                                        {`CREATE UPDATE of services in "" v1, *`},
		"pods.v1":                                         {`CREATE UPDATE of pods in "" v1, *`},
		"services:DELETE":                                 {`DELETE of services in "" v1, *`},
		"services:CREATE,UPDATE,pods":                     {`CREATE UPDATE of services in "" v1, *`, `CREATE UPDATE of pods in "" v1, *`},
		"pods/exec, pods/eviction:CREATE":                 {`CONNECT of pods/exec in "" v1, *`, `CREATE of pods/eviction in "" v1, *`},
		"deployments.apps/scale:UPDATE":                   {`UPDATE of deployments/scale in "apps" v1, *`},
		"ingresses.networking.k8s.io":                     {`CREATE UPDATE of ingresses in "networking.k8s.io" *, *`},
		"ingresses.v1.networking.k8s.io:CREATE":           {`CREATE of ingresses in "networking.k8s.io" v1, *`},
		"httproutes.v1beta1.gateway.networking.k8s.io:*":  {`* of httproutes in "gateway.networking.k8s.io" v1beta1, *`},
		"widgets.v1x.example.org":                         {`CREATE UPDATE of widgets in "v1x.example.org" *, *`},
		"*.apps,*.*/*:CREATE":                             {`CREATE UPDATE of * in "apps" v1, *`, `CREATE of */* in "*" *, *`},
		"persistentvolumeclaims:CREATE,UPDATE,DELETE,a.b": {`CREATE UPDATE DELETE of persistentvolumeclaims in "" v1, *`, `CREATE UPDATE of a in "b" *, *`},
	} {
		rules, err := ParseRules(text)
		var got []string
		for _, r := range rules {
			got = append(got, ruleText(r))
		}
		if err != nil || strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%q: got %q, %v, want %q", text, got, err, want)
		}
	}
}

func TestParseRulesRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                              `"": must be RESOURCE[.GROUP]`,
		"services,":                     `"": must be RESOURCE[.GROUP]`,
		"Services":                      `"Services": must be RESOURCE[.GROUP]`,
		"apps/deployments":              `"apps/deployments": the group follows the resource, as for kubectl (hint: deployments.apps)`,
		"networking.k8s.io/ingresses":   `(hint: ingresses.networking.k8s.io)`,
		"services:create":               `"services:create": the operation "create" must be one of CREATE, UPDATE, DELETE, CONNECT, * (hint: services:CREATE,UPDATE)`,
		"ingresses.networking.k8s.io:":  `"ingresses.networking.k8s.io:": the operation "" must be one of CREATE, UPDATE, DELETE, CONNECT, * (hint: services:CREATE,UPDATE)`,
		"services:,pods":                `"services:": the operation ""`,
		"services:x":                    `"services:x": the operation "x" must be one of CREATE, UPDATE, DELETE, CONNECT, * (hint: services:CREATE,UPDATE)`,
		"CREATE":                        `"CREATE": must be RESOURCE`,
		"services,UPDATE":               `"UPDATE": must be RESOURCE`,
		"services:CREATE,UPDATES":       `"UPDATES": must be RESOURCE`,
		"pods/":                         `"pods/": must be`,
		"pods/exec/x":                   `"pods/exec/x": must be`,
		"pods.":                         `"pods.": must be`,
		"pods..apps":                    `"pods..apps": must be`,
		"a b":                           `"a b": must be`,
		"services:CREATE:UPDATE":        `the operation "CREATE:UPDATE" must be one of`,
		"\x00\n":                        `"\x00": must be`,
		"Bad,services:NO,apps/x":        "\"Bad\": must be RESOURCE[.GROUP][/SUBRESOURCE], with the plural in lower case (hint: services, deployments.apps, pods/exec)\n\"services:NO\": the operation",
		strings.Repeat("x", 1000):       strings.Repeat("x", 90),
		strings.Repeat("services,", 50): `"": must be`,
	} {
		rules, err := ParseRules(text)
		if err == nil || rules != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, %v, want %q", text, rules, err, want)
		}
		if err != nil && len(err.Error()) > 1000 {
			t.Errorf("the error has %d bytes", len(err.Error()))
		}
	}
}

// Whatever is read is a rule that can be registered.
func FuzzParseRules(f *testing.F) {
	for _, text := range []string{"services:CREATE,UPDATE,pods/exec", "*.*/*:*", "a.v1.b/c:DELETE", "apps/x", ",", "x:y:z"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		rules, err := ParseRules(text)
		if (err == nil) != (len(rules) > 0) {
			t.Fatalf("got %v, %v", rules, err)
		}
		for _, r := range rules {
			if len(r.Operations) == 0 || len(r.APIGroups) != 1 || len(r.APIVersions) != 1 || len(r.Resources) != 1 || r.APIVersions[0] == "" || strings.Trim(r.Resources[0], "/") != r.Resources[0] || r.Resources[0] == "" {
				t.Errorf("%q: got %+v", text, r)
			}
		}
	})
}
