package config_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

const (
	tasks        = "../../docs/tasks/"
	loginExample = "../../manifests/examples/login/"
)

// yamlBlock is a YAML block of a page: the file that it shows, if it is a whole one, and its text.
var yamlBlock = regexp.MustCompile("(?ms)^ *```yaml ?([^\n]*)\n(.*?)^ *```$")

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path) // #nosec G304 -- of this repository
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// secrets are the files that the documents of the pages name.
func secrets() map[string]string {
	return map[string]string{
		"secrets/sso.jwks": keySet, "secrets/bind-password": "x", "secrets/ad-password": "x", "secrets/login-2026-11.key": loginKey(),
		"secrets/graph-secret": "x", "secrets/teams-token": "x",
	}
}

// mustBeUsed loads documents with these secrets, and wants them to be a
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

// The documents of the pages about logins are a configuration that can be used. Blocks without an apiVersion are parts of ours: another
// directory, and indented ones fields of its directory. The group sources of one document are those of the issuer of another.
func TestGuideOfLogin(t *testing.T) {
	t.Parallel()
	documents := map[string]string{}
	ours, fields, another, ofDirectory, sources, exchange := "", "", "", "", "", ""
	const header, ofIssuer = "apiVersion: gatehouse.dev/v1alpha1\nkind: AuthenticationConfiguration\n", "    groupSources:\n"
	for _, page := range []string{"log-in-with-ldap.md", "log-in-with-oidc.md", "look-up-groups.md", "end-sessions.md"} {
		for _, block := range yamlBlock.FindAllStringSubmatch(readText(t, tasks+page), -1) {
			name, text := block[1], block[2]
			ourFields, isOurs := strings.CutPrefix(text, header)
			switch {
			case strings.Contains(name, "secrets/"):
			case strings.HasPrefix(text, "  "):
				ofDirectory += text
			case strings.HasPrefix(text, "- name: "):
				another += text
			case strings.HasPrefix(text, "login:\n"):
				exchange = text
			case isOurs && strings.Contains(text, ofIssuer):
				_, listed, _ := strings.Cut(text, ofIssuer)
				sources = ofIssuer + listed
			case isOurs && strings.Contains(text, "directories:"):
				ours = text
			case isOurs:
				fields += ourFields
			default:
				documents[fmt.Sprintf("%d.yaml", len(documents))] = text
			}
		}
	}
	if fields == "" || another == "" || ofDirectory == "" || len(documents) != 2 {
		t.Errorf("the pages show %d documents besides ours, and of ours %q, %q and %q", len(documents), fields, another, ofDirectory)
	}
	const issuer = "  - url: https://sso.example.com\n"
	if sources == "" || strings.Count(fields, issuer) != 1 {
		t.Fatal("the pages have no group sources, or no issuer that they are for")
	}
	exchanging := maps.Clone(documents) // with the issuers, and without a revocation for users of the directory
	maps.DeleteFunc(exchanging, func(_, text string) bool { return strings.Contains(text, "kind: TokenRevocation") })
	exchanging["exchange.yaml"] = header + fields + exchange
	mustBeUsed(t, exchanging)
	fields = strings.Replace(fields, issuer, issuer+sources, 1)
	const directory, login = "- name: corp\n", "\nlogin:\n"
	if strings.Count(ours, directory) != 1 || strings.Count(ours, login) != 1 {
		t.Fatalf("the pages have no document with the directory corp and what is said of login behind it: %q", ours)
	}
	mustBeUsed(t, map[string]string{"login.yaml": ours})
	documents["login.yaml"] = strings.NewReplacer(directory, directory+ofDirectory, login, "\n"+another+login[1:]).Replace(ours) + fields
	c := mustBeUsed(t, documents)
	if len(c.Authn.Issuers) != 1 || c.Authn.Issuers[0].Keys == nil || len(c.Directories) != 2 || len(c.Authn.Revocations) != 1 {
		t.Errorf("%d issuers, %d directories, %d revocations", len(c.Authn.Issuers), len(c.Directories), len(c.Authn.Revocations))
	}
	if c.Directories[0].Config.CertificateAuthority == "" {
		t.Error("the parts are not in use")
	}
	if len(c.GroupSources) != 3 || c.GroupSources[0].Prefix != "corp:" || string(c.GroupSources[2].Secret) != "x" {
		t.Errorf("the group sources are %+v", c.GroupSources)
	}
}

// The example is what the pages show, and can be used once its secrets are made.
func TestExampleOfLogin(t *testing.T) {
	t.Parallel()
	documents := map[string]string{}
	for name, page := range map[string]string{"login.yaml": "log-in-with-ldap.md", "issuers.yaml": "log-in-with-oidc.md"} {
		documents[name] = readText(t, loginExample+name)
		if !strings.Contains(readText(t, tasks+page), "```yaml config/"+name+"\n"+documents[name]+"```") {
			t.Errorf("%s does not show %s of the example as it is", page, name)
		}
	}
	c := mustBeUsed(t, documents)
	if len(c.Authn.Issuers) != 1 || len(c.Directories) != 1 {
		t.Errorf("%d issuers, %d directories", len(c.Authn.Issuers), len(c.Directories))
	}
}
