package config_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

// The documents of the guide are a configuration that can be used.
func TestGuideOfLogin(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../../../docs/login.md")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"secrets/sso.jwks": keySet, "secrets/bind-password": "x", "secrets/login-2026-11.key": loginKey()}
	for i, block := range strings.Split(string(guide), "```yaml\n")[1:] {
		text, _, _ := strings.Cut(block, "```")
		files[fmt.Sprintf("%d.yaml", i)] = text
	}
	c, err := config.Load(write(t, files))
	if err != nil {
		t.Fatal(err)
	}
	set, err := authn.Compile(c.Authn)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range append(c.Warnings, set.Warnings()...) {
		t.Errorf("the guide has a warning: %s", w)
	}
	if len(c.Authn.Issuers) != 1 || len(c.Directories) != 1 || len(c.Authn.Revocations) != 1 {
		t.Errorf("%d issuers, %d directories, %d revocations", len(c.Authn.Issuers), len(c.Directories), len(c.Authn.Revocations))
	}
}
