package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// grantRights are those of two people: boss may grant the group shop-oncall, and clerk has every right to the objects but may grant nothing.
const grantRights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: grant-objects}
rules: [{apiGroups: [gatehouse.dev], resources: [grants], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: grant-shop-oncall}
rules: [{apiGroups: [gatehouse.dev], resources: [groups], resourceNames: [shop-oncall], verbs: [grant]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: grant-objects}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: grant-objects}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: boss}, {apiGroup: rbac.authorization.k8s.io, kind: User, name: clerk}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: grant-shop-oncall}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: grant-shop-oncall}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: boss}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: shop-oncall}
rules: [{apiGroups: [""], resources: [secrets], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: shop-oncall}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: shop-oncall}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: shop-oncall}]
`

// grantObject is a Grant of shop-oncall to jane, as YAML.
func grantObject(name, by string, ttl time.Duration) string {
	return fmt.Sprintf("\napiVersion: gatehouse.dev/v1alpha1\nkind: Grant\nmetadata: {name: %s}\nspec: {subject: {user: jane}, groups: [shop-oncall], grantedBy: %s, expiresAt: %q}\n",
		name, by, time.Now().Add(ttl).UTC().Format(time.RFC3339))
}

// as applies documents as a person, and returns what kubectl says.
func (c *tokenCluster) as(t *testing.T, person, documents string) error {
	t.Helper()
	command := c.Kubectl(t.Context(), "--kubeconfig", c.kubeconfigs[person], "apply", "-f", "-")
	command.Stdin = strings.NewReader(documents)
	out, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// grant runs 'gatehouse grant' as a person.
func (c *tokenCluster) grant(ctx context.Context, person string, args ...string) tokenRun {
	return c.run(ctx, append([]string{"grant", args[0], "--kubeconfig", c.kubeconfigs[person]}, args[1:]...)...)
}

// run runs a command.
func (c *tokenCluster) run(ctx context.Context, args ...string) tokenRun {
	binary, err := gatehouse.Binary()
	if err != nil {
		return tokenRun{remarks: err.Error(), code: -1}
	}
	command := exec.CommandContext(ctx, binary, args...)
	var out, remarks bytes.Buffer
	command.Stdout, command.Stderr = &out, &remarks
	err = command.Run()
	r := tokenRun{out: out.String(), remarks: remarks.String(), code: -1}
	if _, ended := errors.AsType[*exec.ExitError](err); err == nil || ended {
		r.code = command.ProcessState.ExitCode()
	}
	return r
}

// probeGrants runs 'gatehouse probe --grants' as a person.
func (c *tokenCluster) probeGrants(ctx context.Context, person string) tokenRun {
	return c.run(ctx, "probe", "--grants", "--kubeconfig", c.kubeconfigs[person])
}

// gives returns an error unless a replica gives the user of a token these Grants.
func (c *tokenCluster) gives(ctx context.Context, server *gatehouse.Server, token string, names ...string) error {
	status, err := c.ask(ctx, server, token)
	if err != nil {
		return err
	}
	if !status.Authenticated || !slices.Equal(status.User.Extra[v1alpha1.GrantExtraKey], names) || slices.Contains(status.User.Groups, "shop-oncall") != (len(names) > 0) {
		return fmt.Errorf("got %+v, want Grants %q", status.User, names)
	}
	return nil
}

// everyReplicaGives waits until every replica gives the user of a token these Grants.
func (c *tokenCluster) everyReplicaGives(t *testing.T, token string, names ...string) {
	t.Helper()
	for i, server := range c.servers {
		support.Eventually(t, fmt.Sprintf("replica %d gives %q", i, names), func() error { return c.gives(t.Context(), server, token, names...) })
	}
}

// refuses returns an error unless a Grant is not used, for a reason.
func (c *tokenCluster) refuses(ctx context.Context, name, why string) error {
	message, err := c.get(ctx, "grants", name, `{.status.conditions[?(@.type=="Compiled")].status} {.status.phase} {.status.conditions[?(@.type=="Compiled")].message}`)
	if err == nil && (!strings.HasPrefix(message, "False  ") || !strings.Contains(message, why)) {
		err = fmt.Errorf("its status is %q, want %q", message, why)
	}
	return err
}

func TestGrants(t *testing.T) {
	t.Parallel()
	c := newTokenCluster(t)
	must(t, c.apply(t.Context(), grantRights))
	for _, person := range []string{"boss", "clerk"} {
		c.kubeconfig(t, person, person)
	}
	issued := c.token(t.Context(), c.Kubeconfig(), "issue", "--id", "jane", "--user", "jane", "--ttl", "24h")
	issued.wants(t, 0)
	token := strings.TrimSpace(issued.out)
	support.Eventually(t, "Grants count, which takes some seconds after the policy was installed", func() error {
		r := c.grant(t.Context(), "boss", "create", "--name", "incident", "--user", "jane", "--group", "shop-oncall", "--ttl", "4h", "--reason", "incident 4711")
		if r.code != 0 {
			_ = c.grant(t.Context(), "boss", "revoke", "incident")
			return errors.New(r.out + r.remarks)
		}
		return nil
	})
	c.everyReplicaGives(t, token, "incident")

	t.Run("the API server uses the groups", func(t *testing.T) {
		support.Eventually(t, "the group", func() error {
			user, err := whoami(t, c.Cluster, token)
			if err == nil && (!slices.Contains(user.Groups, "shop-oncall") || !slices.Equal(user.Extra[v1alpha1.GrantExtraKey], []string{"incident"})) {
				err = fmt.Errorf("the API server says %+v", user)
			}
			return err
		})
		c.grant(t.Context(), "boss", "list").wants(t, 0, "NAME", "LEFT", "incident", "jane", "shop-oncall", "boss", "active")
		c.grant(t.Context(), "boss", "list", "-o", "json").wants(t, 0, `"name":"incident","user":"jane","groups":["shop-oncall"],"reason":"incident 4711","grantedBy":"boss"`, `"state":"active"`)
		must(t, os.WriteFile(c.path("jane.token"), []byte(token), 0o600))
		said, err := gatehouse.Run(t.Context(), "whoami", "--server", "https://"+c.servers[0].Reviews.String(), "--server-ca", c.path("ca.crt"), "--token-file", c.path("jane.token"))
		must(t, err)
		if !strings.Contains(said, "incident: shop-oncall until ") || !strings.Contains(said, "--authentication-token-webhook-cache-ttl longer") {
			t.Errorf("whoami says %s", said)
		}
	})
	t.Run("the API server checks who grants", func(t *testing.T) {
		c.kubeconfig(t, "guest", "guest")
		c.probeGrants(t.Context(), "boss").wants(t, 0, ": checks who grants")
		c.probeGrants(t.Context(), "guest").wants(t, 2, "you need the right to create grants.gatehouse.dev")
	})
	t.Run("status, Event and metric", func(t *testing.T) {
		support.Eventually(t, "the phase", func() error {
			out, err := c.Kubectl(t.Context(), "get", "ghg", "incident").CombinedOutput()
			if err == nil && !strings.Contains(strings.Join(strings.Fields(string(out)), " "), ` incident True InUse False Active jane ["shop-oncall"] `) {
				err = errors.New(string(out))
			}
			return err
		})
		support.Eventually(t, "the Event", func() error {
			out, err := c.Kubectl(t.Context(), "get", "events", "--field-selector", "reason=GrantStarted", "--output", "jsonpath={.items[*].message}").CombinedOutput()
			if err == nil && !strings.Contains(string(out), "Gatehouse gives shop-oncall to jane until ") {
				err = errors.New(string(out))
			}
			return err
		})
		if n, err := c.servers[0].Metric(t.Context(), "gatehouse_grants", `phase="Active"`); err != nil || n != 1 {
			t.Errorf("the metric is %v (%v)", n, err)
		}
	})
	t.Run("a name that no user can have", func(t *testing.T) {
		c.grant(t.Context(), "boss", "create", "--name", "typo", "--user", "jan", "--group", "shop-oncall", "--ttl", "1h").wants(t, 0, "warning: ", `"jan" is not the name of a user, so nothing is given`)
		c.grant(t.Context(), "boss", "revoke", "typo").wants(t, 0)
	})
	t.Run("who may not", func(t *testing.T) {
		c.grant(t.Context(), "clerk", "create", "--user", "jane", "--group", "shop-oncall", "--ttl", "1h").wants(t, 1, "nothing was granted:", `spec.groups[0]: user "clerk" lacks the verb "grant" on groups.gatehouse.dev "shop-oncall"`)
		c.grant(t.Context(), "boss", "create", "--user", "jane", "--group", "shop-oncall", "--group", "admins", "--ttl", "1h").wants(t, 1, `spec.groups[1]: user "boss" lacks the verb "grant" on groups.gatehouse.dev "admins"`)
		for name, refused := range map[string]struct{ person, document, says string }{
			"a name that is not one's own": {"boss", grantObject("forged", "system:admin", time.Hour), `spec.grantedBy must be your own user name, "boss"`},
			"in the name of another":       {"clerk", grantObject("forged", "boss", time.Hour), `spec.grantedBy must be your own user name, "clerk"`},
			"prolonged":                    {"clerk", grantObject("incident", "clerk", 8*time.Hour), `user "clerk" lacks the verb "grant"`},
			"prolonged in another's name":  {"clerk", grantObject("incident", "boss", 8*time.Hour), `spec.grantedBy must be your own user name`},
			"given to another":             {"clerk", strings.Replace(grantObject("incident", "boss", time.Hour), "jane", "clerk", 1), `spec.grantedBy must be`},
		} {
			if err := c.as(t, refused.person, refused.document); err == nil || !strings.Contains(err.Error(), refused.says) {
				t.Errorf("%s: got %v, want %q", name, err, refused.says)
			}
		}
		for _, args := range [][]string{{"label", "grants", "incident", "team=shop"}, {"annotate", "grants", "incident", "why=because"}} {
			if out, err := c.Kubectl(t.Context(), append([]string{"--kubeconfig", c.kubeconfigs["clerk"]}, args...)...).CombinedOutput(); err != nil {
				t.Errorf("%q, which grants nothing: %v: %s", args, err, out)
			}
		}
		must(t, c.as(t, "boss", grantObject("incident", "boss", 5*time.Hour)))
		c.everyReplicaGives(t, token, "incident")
	})
	t.Run("it ends on time", func(t *testing.T) {
		must(t, c.as(t, "boss", grantObject("brief", "boss", 12*time.Second)))
		c.everyReplicaGives(t, token, "brief", "incident")
		c.everyReplicaGives(t, token, "incident")
		support.Eventually(t, "the phase and the Event", func() error {
			phase, err := c.get(t.Context(), "grants", "brief", "{.status.phase}")
			if err != nil || phase != "Expired" {
				return fmt.Errorf("the phase is %q (%w)", phase, err)
			}
			out, err := c.Kubectl(t.Context(), "get", "events", "--field-selector", "reason=GrantEnded", "--output", "jsonpath={.items[*].message}").CombinedOutput()
			if err == nil && !strings.Contains(string(out), "Gatehouse does not give shop-oncall to jane any more.") {
				err = errors.New(string(out))
			}
			return err
		})
	})
	t.Run("what the configuration forbids", func(t *testing.T) {
		text, err := os.ReadFile(filepath.Join(c.path("issuers"), "ours.yaml"))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(c.path("issuers"), "ours.yaml"), append(text, "grants: {maxDuration: 6h, ownGrants: Deny}\n"...), 0o600))
		own := strings.Replace(grantObject("own", "boss", time.Hour), "{user: jane}", "{user: boss}", 1)
		for document, says := range map[string]string{own: "grants.ownGrants of the AuthenticationConfiguration is Deny", grantObject("long", "boss", 7*time.Hour): "grants.maxDuration of the AuthenticationConfiguration allows no longer"} {
			support.Eventually(t, "the refusal", func() error {
				err := c.as(t, "boss", document)
				if err == nil {
					_ = c.grant(t.Context(), "boss", "revoke", "own", "long")
					return errors.New("it was applied")
				}
				if !strings.Contains(err.Error(), says) {
					return err
				}
				return nil
			})
		}
		out, err := c.Kubectl(t.Context(), "delete", "validatingwebhookconfiguration", "gatehouse").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		support.Eventually(t, "the webhook is not asked any more", func() error { return c.as(t, "boss", grantObject("long", "boss", 7*time.Hour)) })
		must(t, c.as(t, "boss", own))
		support.Eventually(t, "the status", func() error {
			return errors.Join(c.refuses(t.Context(), "long", "grants.maxDuration"), c.refuses(t.Context(), "own", "grants.ownGrants"))
		})
		c.everyReplicaGives(t, token, "incident")
		if err := c.as(t, "clerk", grantObject("forged", "clerk", time.Hour)); err == nil || !strings.Contains(err.Error(), `lacks the verb "grant"`) {
			t.Errorf("without our webhook, the clerk grants: %v", err)
		}
	})
	t.Run("deleted", func(t *testing.T) {
		c.grant(t.Context(), "boss", "revoke", "incident", "--dry-run").wants(t, 0, "would remove Grant incident of shop-oncall to jane, in the cluster", "nothing was changed")
		c.everyReplicaGives(t, token, "incident")
		c.grant(t.Context(), "boss", "revoke", "incident").wants(t, 0, "removed Grant incident of shop-oncall to jane, in the cluster")
		c.everyReplicaGives(t, token)
		support.Eventually(t, "the API server's cache runs out", func() error {
			user, err := whoami(t, c.Cluster, token)
			if err == nil && slices.Contains(user.Groups, "shop-oncall") {
				err = errors.New("the group is there still")
			}
			return err
		})
	})
	// Without the policy anybody may grant.
	t.Run("the policy is away for a while", func(t *testing.T) { c.withoutGrantPolicy(t, token) })
	// The last: the API server does not find the new replica.
	t.Run("a replica restarts", func(t *testing.T) {
		other := c.servers[1]
		c.servers[0].Kill()
		for range 5 {
			must(t, c.gives(t.Context(), other, token, "anew"))
		}
		c.servers = c.servers[1:]
		c.start(t, 0)
		must(t, c.gives(t.Context(), c.servers[1], token, "anew")) // as soon as it is ready
	})
	t.Run("the policy is another one for a while", func(t *testing.T) {
		c.servers = c.servers[:1] // the other one ended with its test
		for _, failure := range []string{"Ignore", "Fail"} {
			out, err := c.Kubectl(t.Context(), "patch", "validatingadmissionpolicy", "gatehouse-grants", "--type", "merge", "--patch", `{"spec": {"failurePolicy": "`+failure+`"}}`).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
		c.everyReplicaGives(t, token)
		support.Eventually(t, "the status", func() error {
			return c.refuses(t.Context(), "anew", `the spec of the ValidatingAdmissionPolicy "gatehouse-grants" was changed since it was created`)
		})
	})
}

// withoutGrantPolicy removes the API server's policy: no Grant counts, neither one from before nor a forged one. When the policy is back, only
// what is granted from then on counts.
func (c *tokenCluster) withoutGrantPolicy(t *testing.T, token string) {
	t.Helper()
	must(t, c.as(t, "boss", grantObject("before", "boss", time.Hour)))
	c.everyReplicaGives(t, token, "before")
	out, err := c.Kubectl(t.Context(), "delete", "validatingadmissionpolicybinding", "gatehouse-grants").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c.everyReplicaGives(t, token)
	support.Eventually(t, "the policy is not enforced any more", func() error { return c.as(t, "clerk", grantObject("forged", "boss", time.Hour)) })
	c.probeGrants(t.Context(), "boss").wants(t, 1, "the API server does not check who grants: as a dry run, it has created a Grant in the name of another user", `ValidatingAdmissionPolicy "gatehouse-grants"`)
	support.Eventually(t, "the status", func() error {
		const why = `the API server may not have checked that this user may grant, so Gatehouse gives nothing: the ValidatingAdmissionPolicyBinding "gatehouse-grants" does not exist`
		return errors.Join(c.refuses(t.Context(), "before", why), c.refuses(t.Context(), "forged", why))
	})
	c.register(t)
	support.Eventually(t, "what is granted from now on counts", func() error {
		_, _ = c.Kubectl(t.Context(), "delete", "grant", "anew", "--ignore-not-found").CombinedOutput()
		r := c.grant(t.Context(), "boss", "create", "--name", "anew", "--user", "jane", "--group", "shop-oncall", "--ttl", "1h")
		if r.code != 0 {
			return errors.New(r.out + r.remarks)
		}
		return nil
	})
	c.everyReplicaGives(t, token, "anew")
	support.Eventually(t, "the status", func() error {
		const why = "and the API server checks Grants since "
		return errors.Join(c.refuses(t.Context(), "before", why), c.refuses(t.Context(), "forged", why))
	})
}
