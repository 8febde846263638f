package config_test

import (
	"encoding/base64"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

const (
	upstream = `apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer: {url: https://issuer.example, audiences: [kubernetes]}
  claimMappings:
    username: {claim: sub, prefix: "oidc:"}
`
	ours = `apiVersion: gatehouse.dev/v1alpha1
kind: AuthenticationConfiguration
directories:
- name: corp
  servers: [ldaps://ldap.example]
  bindDN: cn=search,dc=example
  bindPasswordFile: secrets/bind
  userSearch: {baseDN: "dc=example", filter: "(uid={})", usernameAttribute: uid}
login:
  keys:
  - {name: first, file: secrets/login.key}
`
	// RFC 7517, A.1: the RSA key.
	keySet = `{"keys":[{"kty":"RSA","n":"0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw","e":"AQAB","alg":"RS256","kid":"2011-04-29"}]}`
)

// write writes files below a new directory.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func loginKey() string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))
}

func TestAuthenticationConfiguration(t *testing.T) {
	t.Parallel()
	dir := write(t, map[string]string{
		"a/upstream.yaml": upstream,
		"b/ours.yaml": ours + `jwt:
  keyRefreshInterval: 2m
  issuers: [{url: https://issuer.example, keysFile: ../keys.json.txt}]
`,
		"b/secrets/bind":      "hunter2 \n",
		"b/secrets/login.key": loginKey() + "\n",
		"keys.json.txt":       keySet,
	})
	c, err := config.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(c.Authn.Issuers); n != 1 {
		t.Fatalf("%d issuers", n)
	}
	issuer := c.Authn.Issuers[0]
	if issuer.Source != "a/upstream.yaml" || issuer.Field != "jwt[0]" || issuer.Config.Issuer.URL != "https://issuer.example" {
		t.Errorf("%+v", issuer)
	}
	if keys, err := issuer.Keys.Find(t.Context(), "2011-04-29"); err != nil || len(keys) != 1 {
		t.Errorf("keys %v, error %v", keys, err)
	}
	if len(c.Directories) != 1 || c.Directories[0].BindPassword != "hunter2" || c.Authn.Directories[0].Config.Name != "corp" {
		t.Errorf("%+v", c.Directories)
	}
	if len(c.Authn.LoginKeys) != 1 || string(c.Authn.LoginKeys[0].Secret) != strings.Repeat("k", 32) {
		t.Errorf("%+v", c.Authn.LoginKeys)
	}
}

// A file that a document names is part of the configuration, but not of the digest
// that everybody may see.
func TestNamedFilesAreWatchedAndNotShown(t *testing.T) {
	t.Parallel()
	dir := write(t, map[string]string{"ours.yaml": ours, "secrets/bind": "hunter2", "secrets/login.key": loginKey()})
	before, err := config.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "secrets", "bind"), []byte("hunter3"), 0o600); err != nil {
		t.Fatal(err)
	}
	after, err := config.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if before.State == after.State || after.Directories[0].BindPassword != "hunter3" {
		t.Error("the new password is not seen")
	}
	if before.Digest != after.Digest {
		t.Error("who sees the digest can try passwords by it")
	}
}

// groupSource is a source of groups with these fields of its service.
func groupSource(fields string) string {
	return "jwt: {issuers: [{url: https://issuer.example, groupSources: [{name: a, groupsPrefix: 'a:', http: {url: 'https://a.example', " + fields + "}}]}]}\n"
}

func TestAuthenticationConfigurationErrors(t *testing.T) {
	t.Parallel()
	good := map[string]string{"ours.yaml": ours, "secrets/bind": "hunter2", "secrets/login.key": loginKey(), "upstream.yaml": upstream}
	for name, test := range map[string]struct {
		files map[string]string
		want  string
	}{
		"no password file": {map[string]string{"secrets/bind": ""}, `ours.yaml: AuthenticationConfiguration: directories[0].bindPasswordFile: "secrets/bind" is empty`},
		"a directory in the place of a key": {
			map[string]string{"ours.yaml": strings.ReplaceAll(ours, "secrets/login.key", "secrets")},
			`ours.yaml: AuthenticationConfiguration: login.keys[0].file: "secrets" cannot be read: is not a regular file`,
		},
		"a key that is not there": {
			map[string]string{"ours.yaml": strings.ReplaceAll(ours, "secrets/login.key", "../login.key")},
			`ours.yaml: AuthenticationConfiguration: login.keys[0].file: "../login.key" cannot be read: no such file or directory`,
		},
		"a password in the place of its file": {
			map[string]string{"ours.yaml": strings.Replace(ours, "secrets/bind", "hunter2", 1)},
			`directories[0].bindPasswordFile: is not the path of an existing file; its 7 bytes are not shown, because they may be a secret (hint: write the path of a file, `,
		},
		"a password of many kinds of characters": {
			map[string]string{"ours.yaml": strings.Replace(ours, "secrets/bind", `"hunter2/ü.$(x)"`, 1)},
			`directories[0].bindPasswordFile: is not the path of an existing file`,
		},
		"a key in the place of its file": {
			map[string]string{"ours.yaml": strings.Replace(ours, "secrets/login.key", "hunter2"+loginKey(), 1)},
			`login.keys[0].file: is not the path of an existing file`,
		},
		"a key with a slash in the place of its file": {
			map[string]string{"ours.yaml": strings.Replace(ours, "secrets/login.key", "hunter2/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", 1)},
			`login.keys[0].file: is not the path of an existing file`,
		},
		"a long path that is not there": {
			map[string]string{"ours.yaml": strings.Replace(ours, "secrets/login.key", "/etc/gatehouse/secrets/login.key", 1)},
			`login.keys[0].file: "/etc/gatehouse/secrets/login.key" cannot be read: no such file or directory`,
		},
		"a key that is no base64": {map[string]string{"secrets/login.key": "p@ss"}, `login.keys[0].file: "secrets/login.key" is not base64`},
		"a key set that is none": {
			map[string]string{"ours.yaml": ours + "jwt: {issuers: [{url: https://issuer.example, keysFile: secrets/bind}]}\n"},
			`jwt.issuers[0].keysFile: "secrets/bind" is not a valid JSON Web Key Set: `,
		},
		"a token of two lines": {
			map[string]string{"ours.yaml": ours + groupSource("tokenFile: secrets/two"), "secrets/two": "hunter2\nx"},
			`jwt.issuers[0].groupSources[0].http.tokenFile: "secrets/two" is empty, or has more than one line`,
		},
		"a client key that is none": {
			map[string]string{"ours.yaml": ours + groupSource("clientCertificateFile: secrets/bind, clientKeyFile: secrets/bind")},
			`jwt.issuers[0].groupSources[0].http.clientKeyFile: "secrets/bind" is not the key of clientCertificateFile: `,
		},
		"a field that there is not": {
			map[string]string{"upstream.yaml": strings.Replace(upstream, "audiences:", "audience:", 1)},
			`unknown field "jwt[0].issuer.audience"`,
		},
		"a version that there is not": {
			map[string]string{"upstream.yaml": strings.Replace(upstream, "k8s.io/v1", "k8s.io/v2", 1)},
			`apiVersion: "apiserver.config.k8s.io/v2" is not a supported version of AuthenticationConfiguration`,
		},
		"a kind that there is not": {
			map[string]string{"upstream.yaml": strings.Replace(upstream, "AuthenticationConfiguration", "AuthenticationConfig", 1)},
			`did you mean "AuthenticationConfiguration"?`,
		},
		"a duration that is none, and nothing about files that are there": {
			map[string]string{"ours.yaml": ours + "  tokenTTL: 1d\n"},
			"ours.yaml: AuthenticationConfiguration: login.tokenTTL: ",
		},
		"two of upstream's": {map[string]string{"more.yaml": upstream}, `the AuthenticationConfiguration of apiserver.config.k8s.io is given twice, first in "more.yaml"`},
		"two of ours":       {map[string]string{"another.yaml": ours, "secrets/x": "x"}, `the AuthenticationConfiguration is given twice, first in "another.yaml"`},
		"a directory without a server": {
			map[string]string{"ours.yaml": strings.Replace(ours, "[ldaps://ldap.example]", "[]", 1)},
			`ours.yaml: AuthenticationConfiguration: directories[0].servers`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := map[string]string{}
			for _, from := range []map[string]string{good, test.files} {
				maps.Copy(files, from)
			}
			_, err := config.Load(write(t, files))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error:\n%v\nwant\n%s", err, test.want)
			}
			if err != nil && strings.Contains(err.Error(), "was not read") {
				t.Errorf("%v", err)
			}
			if err != nil && (strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "p@ss")) {
				t.Errorf("a secret is in the error: %v", err)
			}
		})
	}
}
