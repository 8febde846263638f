package configuration

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server/telemetry"
	"github.com/gatehouse-dev/gatehouse/test/support/logbuffer"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/config/resolve"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// configured is a configuration of a policy with this expression, or of none, and
// perhaps an exception that cannot be used.
func configured(t *testing.T, digest, expression string, exceptions ...policy.Exception) *resolve.Resolution {
	t.Helper()
	c := &config.Config{Digest: digest}
	c.Policy.Exceptions = exceptions
	if expression != "" {
		p := policy.AdmissionPolicy{AdmissionPolicy: v1alpha1.AdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}, Source: "p.yaml"}
		p.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
		p.Spec.Validations = []v1alpha1.Validation{{Validation: admissionregistrationv1.Validation{Expression: expression}}}
		p.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
			RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			},
		}}}
		c.Policy.AdmissionPolicies = []policy.AdmissionPolicy{p}
	}
	spec := webhooks.Spec{Policy: c.Policy}
	spec.Policy.KeepBroken = true
	s, err := webhooks.Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	return &resolve.Resolution{Config: c, Snapshot: s}
}

// TestWhatIsToldOfConfigurations reads the log while configurations come: what
// cannot be used is not said to be good.
func TestWhatIsToldOfConfigurations(t *testing.T) {
	t.Parallel()
	unreasoned := policy.Exception{PolicyException: v1alpha1.PolicyException{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "gatehouse-system"}}, Source: "x.yaml"}
	wrong := diagnostic.List{
		{Severity: diagnostic.Warning, Source: "a.yaml", Message: "odd"},
		{Severity: diagnostic.Error, Source: "b.yaml", Message: "wrong"},
		{Severity: diagnostic.Error, Source: "c.yaml", Message: "wrong too"},
	}
	const broken = "ERROR expressions do not compile: the failurePolicy of such a policy decides for matching requests; such an exception exempts nothing"
	good := func(u *Active) { u.activate(configured(t, "good", "true")) }
	invalid := func(u *Active) { u.activate(configured(t, "broken", "true +")) }
	for _, tc := range []struct {
		name    string
		happens []func(*Active)
		// said are the warnings and errors logged of the last.
		said []string
	}{
		{"good", []func(*Active){good}, nil},
		{"policies that do not compile", []func(*Active){invalid}, []string{"ERROR configuration error", broken + " 1 p.yaml: AdmissionPolicy/p: spec.validations[0].expression"}},
		{
			"an exception that cannot be used",
			[]func(*Active){func(u *Active) { u.activate(configured(t, "exception", "true", unreasoned)) }},
			[]string{"ERROR configuration error", "ERROR configuration error", "ERROR configuration error", broken + " 3 x.yaml: PolicyException/gatehouse-system/x:"},
		},
		{
			"good, then not used",
			[]func(*Active){good, func(u *Active) { u.keepActive(&config.Config{}, wrong) }},
			[]string{"ERROR configuration rejected; the previous one stays active 2 b.yaml: wrong", "WARN configuration warning", "ERROR configuration error", "ERROR configuration error"},
		},
		{
			"what does not compile, then not used",
			[]func(*Active){invalid, func(u *Active) { u.keepActive(&config.Config{}, errors.New("no directory")) }},
			[]string{"ERROR configuration rejected; the previous one, which has errors, stays active 1 no directory", "ERROR configuration error"},
		},
		{"repaired", []func(*Active){invalid, func(u *Active) { u.keepActive(&config.Config{}, wrong) }, good}, nil},
		{
			"no policies any more",
			[]func(*Active){good, func(u *Active) { u.activate(configured(t, "none", "")) }},
			[]string{"WARN the configuration has no policies any more: no request is denied or changed by a policy"},
		},
		{"never a policy", []func(*Active){func(u *Active) { u.activate(configured(t, "none", "")) }, func(u *Active) { u.activate(configured(t, "none", "")) }}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var log logbuffer.Buffer
			u := Active{Dir: "DIR", Log: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))}
			u.Metrics = telemetry.New(u.Log, "v1")
			for _, happens := range tc.happens {
				_ = log.Take()
				happens(&u)
			}
			if got := told(t, log.Take()); !slices.EqualFunc(got, tc.said, strings.HasPrefix) {
				t.Errorf("said is\n%q, want\n%q", got, tc.said)
			}
		})
	}
}

// TestFewOfEach: a custom resource with thousands of diagnostics takes some lines of the log, and no document less than all.
func TestFewOfEach(t *testing.T) {
	t.Parallel()
	var all diagnostic.List
	for i := range 100 {
		for _, of := range [][2]string{{"p.yaml", "AdmissionPolicy/p"}, {config.ClusterSource, "PolicyException/shop/x"}, {config.ClusterSource, "AdmissionPolicy/p"}} {
			if i < 5 || of[1] != "AdmissionPolicy/p" || of[0] == "p.yaml" {
				all = append(all, diagnostic.Diagnostic{Severity: diagnostic.Warning, Source: of[0], Object: of[1], Message: strconv.Itoa(i)})
			}
		}
	}
	counts := map[[2]string]int{}
	for _, f := range limitPerResource(all) {
		counts[[2]string{f.Source, f.Object}]++
	}
	want := map[[2]string]int{{"p.yaml", "AdmissionPolicy/p"}: 100, {config.ClusterSource, "PolicyException/shop/x"}: maxPerResource, {config.ClusterSource, "AdmissionPolicy/p"}: 5}
	if !maps.Equal(counts, want) {
		t.Errorf("the findings left are %v, want %v", counts, want)
	}
}

// told are level, message, number of errors and the first of them of each line of
// a log.
func told(t *testing.T, log string) []string {
	t.Helper()
	var out []string
	for line := range strings.Lines(log) {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatal(err)
		}
		text := entry["level"].(string) + " " + entry["msg"].(string)
		if n, counted := entry["errors"].(float64); counted {
			text += fmt.Sprintf(" %v %s", n, entry["first"])
		}
		out = append(out, text)
	}
	return out
}

// TestWithdrawnThoughBroken reads what becomes of access tokens while the
// configuration is broken: what is gone is gone, and what may still be there is
// there.
func TestWithdrawnThoughBroken(t *testing.T) {
	t.Parallel()
	text := map[string]string{}
	tokens := map[string]authn.Token{}
	for id, user := range map[string]string{"one": "jane", "two": "jane", "three": "joe"} {
		secret, hash := authn.NewToken(id, [25]byte{byte(len(id))})
		text[id] = secret
		token := authn.Token{Source: "tokens/" + id + ".yaml#2"}
		token.Name = id
		token.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
		token.Spec = v1alpha1.AccessTokenSpec{SHA256: hash, User: authenticationv1.UserInfo{Username: user}, ExpiresAt: metav1.NewTime(time.Now().Add(time.Hour))}
		tokens[id] = token
	}
	with := func(ids ...string) *config.Config {
		c := &config.Config{}
		c.Authn.Now = time.Now
		for _, id := range ids {
			c.Authn.Tokens = append(c.Authn.Tokens, tokens[id])
		}
		return c
	}
	everything := config.Unread{All: true}
	broken := func(paths ...string) config.Unread { return config.Unread{Paths: paths} }
	reissued := with("one", "two", "three")
	reissued.Authn.Tokens[0].Spec.SHA256 = strings.Repeat("0", 64)
	revoking := with("one", "two", "three")
	revocation := authn.Revocation{}
	revocation.Spec.User, revocation.Spec.IssuedBefore = "joe", metav1.Now()
	revoking.Authn.Revocations = []authn.Revocation{revocation}
	for name, test := range map[string]struct {
		next   *config.Config
		unread config.Unread
		want   string
	}{
		"nothing is gone":                           {with("one", "two", "three"), broken("p.yaml"), "one two three"},
		"one is gone, and another file is broken":   {with("two", "three"), broken("p.yaml", "q.yaml"), "two three"},
		"one is gone, and nothing compiles":         {with("two", "three"), broken(), "two three"},
		"one was issued anew, and a file is broken": {reissued, broken("p.yaml"), "two three"},
		"the file of one is broken":                 {with("two", "three"), broken("tokens/one.yaml"), "one two three"},
		"a directory cannot be read":                {with(), broken("tokens"), "one two three"},
		"the directory cannot be read":              {with(), everything, "one two three"},
		"a limit is met, and a revocation was read": {revoking, everything, "one two"},
		"a revocation, and a file is broken":        {revoking, broken("p.yaml"), "one two"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := slog.New(slog.DiscardHandler)
			u := &Active{Dir: "config", Log: log, Metrics: telemetry.New(log, "test"), Seed: maphash.MakeSeed()}
			first := with("one", "two", "three")
			s, err := webhooks.Compile(webhooks.Spec{Authn: first.Authn})
			if err != nil {
				t.Fatal(err)
			}
			u.activate(&resolve.Resolution{Config: first, Snapshot: s})
			err = errors.New("broken")
			next := *test.next // cases share configurations
			next.Unread = test.unread
			u.keepActive(&next, err)
			u.keepActive(&next, err) // as when it changes, and is broken still
			var good []string
			for _, id := range []string{"one", "two", "three"} {
				if u.Snapshot.Load().Authn.Decide(t.Context(), authn.Input{Token: text[id]}).Outcome == authn.Yes {
					good = append(good, id)
				}
			}
			if got := strings.Join(good, " "); got != test.want {
				t.Errorf("good are %q, want %q", got, test.want)
			}
			// What is back counts, although the rest is broken still.
			if len(test.next.Authn.Revocations) == 0 {
				u.keepActive(with("one", "two", "three"), err)
				if u.Snapshot.Load().Authn.Decide(t.Context(), authn.Input{Token: text["one"]}).Outcome != authn.Yes {
					t.Error("a token whose document is back is refused while another is broken")
				}
			}
			// The next configuration that can be used counts alone.
			u.activate(&resolve.Resolution{Config: with("one", "two", "three"), Snapshot: s})
			if u.Snapshot.Load().Authn.Decide(t.Context(), authn.Input{Token: text["one"]}).Outcome != authn.Yes {
				t.Error("a token that is back is refused")
			}
		})
	}
}
