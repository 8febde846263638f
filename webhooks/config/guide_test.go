package config_test

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

const (
	loginGuide   = "../../docs/login.md"
	loginExample = "../../manifests/examples/login/"
)

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path) // #nosec G304 -- of this repository
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// secrets are the files that the documents of the guide name.
func secrets() map[string]string {
	return map[string]string{
		"secrets/sso.jwks": keySet, "secrets/bind-password": "x", "secrets/ad-password": "x", "secrets/login-2026-11.key": loginKey(),
		"secrets/graph-secret": "x", "secrets/teams-token": "x",
	}
}

// mustBeUsed loads documents with the guide's secrets, and wants them to be a
// configuration without warnings.
func mustBeUsed(t *testing.T, documents map[string]string) *config.Config {
	t.Helper()
	files := secrets()
	maps.Copy(files, documents)
	c, err := config.Load(write(t, files))
	if err != nil {
		t.Fatal(err)
	}
	set, err := authn.Compile(c.Authn)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range append(c.Warnings, set.Warnings()...) {
		t.Errorf("there is a warning: %s", w)
	}
	return c
}

// The documents of the guide are a configuration that can be used, each by itself
// and all together. Blocks without an apiVersion are parts of ours: fields of the
// document, another directory, and indented ones fields of its directory.
func TestGuideOfLogin(t *testing.T) {
	t.Parallel()
	documents := map[string]string{}
	ours, fields, another, ofDirectory, sources := "", "", "", "", ""
	for i, block := range strings.Split(readText(t, loginGuide), "```yaml\n")[1:] {
		text, _, _ := strings.Cut(block, "```")
		switch {
		case strings.HasPrefix(text, "  "):
			ofDirectory += text
		case strings.HasPrefix(text, "- name: "):
			another += text
		case strings.HasPrefix(text, "groupSources:"):
			sources = "    " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n    ") + "\n"
		case !strings.HasPrefix(text, "apiVersion: "):
			fields += text
		case strings.Contains(text, "directories:"):
			ours = text
		default:
			documents[fmt.Sprintf("%d.yaml", i)] = text
		}
	}
	if fields == "" || another == "" || ofDirectory == "" {
		t.Error("the guide shows no parts of the document")
	}
	const issuer = "  - url: https://sso.example.com\n"
	if sources == "" || strings.Count(fields, issuer) != 1 {
		t.Fatal("the guide has no group sources, or no issuer that they are for")
	}
	fields = strings.Replace(fields, issuer, issuer+sources, 1)
	const directory, login = "- name: corp\n", "\nlogin:\n"
	if strings.Count(ours, directory) != 1 || strings.Count(ours, login) != 1 {
		t.Fatalf("the guide has no document with the directory corp and what is said of login behind it: %q", ours)
	}
	mustBeUsed(t, map[string]string{"login.yaml": ours})
	documents["login.yaml"] = strings.NewReplacer(directory, directory+ofDirectory, login, "\n"+another+login[1:]).Replace(ours) + fields
	c := mustBeUsed(t, documents)
	if len(c.Authn.Issuers) != 1 || c.Authn.Issuers[0].Keys == nil || len(c.Directories) != 2 || len(c.Authn.Revocations) != 1 {
		t.Errorf("%d issuers, %d directories, %d revocations", len(c.Authn.Issuers), len(c.Directories), len(c.Authn.Revocations))
	}
	if c.Directories[0].Config.CertificateAuthority == "" || len(c.Authn.Configuration.Guard.AllowedGroups) != 1 {
		t.Error("the parts are not in use")
	}
	if len(c.GroupSources) != 3 || c.GroupSources[0].Prefix != "corp:" || string(c.GroupSources[2].Secret) != "x" {
		t.Errorf("the group sources are %+v", c.GroupSources)
	}
}

// The example is what the guide shows, and can be used once its secrets are made.
func TestExampleOfLogin(t *testing.T) {
	t.Parallel()
	guide := readText(t, loginGuide)
	documents := map[string]string{}
	for _, name := range []string{"login.yaml", "issuers.yaml"} {
		documents[name] = readText(t, loginExample+name)
		if !strings.Contains(guide, "```yaml\n"+documents[name]+"```") {
			t.Errorf("docs/login.md does not show %s of the example as it is", name)
		}
	}
	c := mustBeUsed(t, documents)
	if len(c.Authn.Issuers) != 1 || len(c.Directories) != 1 {
		t.Errorf("%d issuers, %d directories", len(c.Authn.Issuers), len(c.Directories))
	}
}

// The guide's reference has every field of the document, and no others.
func TestReferenceOfLogin(t *testing.T) {
	t.Parallel()
	_, reference, _ := strings.Cut(readText(t, loginGuide), "## Fields of AuthenticationConfiguration\n")
	sections := map[string]string{}
	for section := range strings.SplitSeq(reference, "\n### ") {
		name, text, _ := strings.Cut(section, "\n")
		sections[name] = text
	}
	for section, of := range map[string]any{
		"directories": v1alpha1.Directory{}, "userSearch": v1alpha1.UserSearch{}, "groupSearch": v1alpha1.GroupSearch{},
		"login": v1alpha1.LoginConfiguration{}, "jwt": v1alpha1.JWTConfiguration{}, "groupSources": v1alpha1.GroupSource{}, "guard": v1alpha1.GuardConfiguration{},
	} {
		want := map[string]bool{}
		fieldsOf(reflect.TypeOf(of), "", want)
		switch section {
		case "jwt": // group sources have a section of their own
			maps.DeleteFunc(want, func(name string, _ bool) bool { return strings.HasPrefix(name, "issuers[].groupSources") })
			want["issuers[].groupSources"] = true
		case "groupSources":
			for kind, of := range map[string]any{
				"userInfo": v1alpha1.UserInfoGroups{}, "ldap": v1alpha1.LDAPGroups{}, "graph": v1alpha1.GraphGroups{}, "http": v1alpha1.HTTPGroups{},
			} {
				fieldsOf(reflect.TypeOf(of), kind+".", want)
			}
		}
		got := map[string]bool{}
		for line := range strings.Lines(sections[section]) {
			row, ok := strings.CutPrefix(line, "| `")
			if !ok {
				continue
			}
			names, _, _ := strings.Cut(row, " |")
			for name := range strings.SplitSeq(names, ", ") {
				got[strings.Trim(name, "`")] = true
			}
		}
		if section == "login" {
			delete(got, "keys") // said of the list itself
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: the guide has %v, the document %v", section, got, want)
		}
	}
}

// fieldsOf are the paths of the fields of a type, those in lists of objects too.
// Objects have sections of their own.
func fieldsOf(of reflect.Type, prefix string, into map[string]bool) {
	for field := range of.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Type == reflect.TypeFor[metav1.TypeMeta]() {
			continue
		}
		if field.Type.Kind() == reflect.Slice && field.Type.Elem().Kind() == reflect.Struct {
			fieldsOf(field.Type.Elem(), prefix+name+"[].", into)
			continue
		}
		into[prefix+name] = true
	}
}
