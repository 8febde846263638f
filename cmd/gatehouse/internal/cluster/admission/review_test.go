package admission_test

import (
	"strings"
	"testing"
	"time"
)

// head is a document's apiVersion.
const head = "apiVersion: gatehouse.dev/v1alpha1\n"

// profile is a profile with a native sidecar and whatever else its spec says.
func profile(name, container, more string) string {
	return head + "kind: SidecarProfile\nmetadata: {name: " + name + "}\nspec:\n  injection: OptOut\n  template: {spec: {initContainers: [{name: " + container + ", image: example.com/a, restartPolicy: Always, startupProbe: {exec: {command: [x]}}}]}}\n" + more
}

// admissionPolicy is a policy about pods with whatever else its spec says.
func admissionPolicy(name, more string) string {
	return head + "kind: AdmissionPolicy\nmetadata: {name: " + name + "}\nspec:\n" +
		"  matchConstraints: {resourceRules: [{apiGroups: [\"\"], apiVersions: [v1], resources: [pods], operations: [CREATE]}]}\n" + more
}

const (
	rules = "  validations: [{expression: \"object.metadata.name != 'x'\", message: no x}]\n"
	deny  = "  validationActions: [Deny]\n"
	hash  = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	// sources is a configuration with sources that are not custom resources.
	sources = `{apiVersion: gatehouse.dev/v1alpha1, kind: AuthenticationConfiguration, jwt: {issuers: [{url: "https://issuer.example"}]},
guard: {prefixes: [{source: "https://issuer.example", username: "sso:"}, {source: corp, username: "corp:"}, {source: access-tokens, username: "robot:"}]}}`
	// secret is the text of a token.
	secret = "gatehouse_ci_unq3zlo745dva5breddgfhhzitomcrrzpxtpo67a7xgobgi"
)

func binding(spec string) string {
	return head + "kind: AdmissionPolicyBinding\nmetadata: {name: b}\nspec: " + spec + "\n"
}

func exception(namespace, spec string) string {
	return head + "kind: PolicyException\nmetadata: {name: x, namespace: " + namespace + "}\nspec: " + spec + "\n"
}

func token(name, spec string) string {
	return head + "kind: AccessToken\nmetadata: {name: " + name + "}\nspec: " + spec + "\n"
}

func grant(spec string) string {
	return head + "kind: Grant\nmetadata: {name: g}\nspec: " + spec + "\n"
}

func revocation(name, spec string) string {
	return head + "kind: TokenRevocation\nmetadata: {name: " + name + "}\nspec: " + spec + "\n"
}

// TestReview has what people of each kind are told.
func TestReview(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		config   []string
		document string
		old      string
		want     string
	}{
		// SidecarProfile
		{name: "a profile", document: profile("a", "a", ""), want: "allowed\n"},
		{name: "a profile that was there", config: []string{profile("a", "a", "")}, document: profile("a", "b", ""), old: profile("a", "a", ""), want: "allowed\n"},
		{name: "unknown fields and a wrong type", document: profile("a", "a", "  injektion: OptIn\n  rollout: {percent: many}\n"), want: `SidecarProfile "a" is invalid:
* spec.injektion: unknown field (hint: did you mean "injection"?)
* spec.rollout.percent: "many" is a string, expected an integer
`},
		{name: "an expression", document: profile("a", "a", "  match: {matchConditions: [{name: x, expression: 'object.spec.'}]}\n"), want: `SidecarProfile "a" is invalid: spec.match.matchConditions[0].expression: 1:13 in "object.spec.": Syntax error: no viable alternative at input '.'
`},
		{name: "the same container as another, which its conditions say", config: []string{profile("b", "proxy", "")}, document: profile("a", "proxy", ""), want: "allowed\n"},
		{name: "after one that is not there yet", config: []string{profile("mesh", "mesh", "")}, document: profile("a", "a", "  placement: {after: [mesch]}\n"), want: "allowed\n"},
		{name: "replaces one that is not there yet", config: []string{profile("mesh", "mesh", "")}, document: profile("a", "a", "  rollout: {percent: 10, replaces: mesch}\n"), want: "allowed\n"},
		{name: "replaces itself", document: profile("a", "a", "  rollout: {percent: 10, replaces: a}\n"), want: `SidecarProfile "a" is invalid: spec.rollout.replaces: a profile cannot replace itself
`},

		// AdmissionPolicy
		{name: "a policy", document: admissionPolicy("p", rules+deny), want: "allowed\n"},
		{name: "a policy before its binding", document: admissionPolicy("p", rules), want: "allowed\n"},
		{name: "a policy with a binding", config: []string{admissionPolicy("p", rules), binding("{policyName: p, validationActions: [Deny]}")}, document: admissionPolicy("p", rules), want: "allowed\n"},
		{name: "two expressions", document: admissionPolicy("p", "  validations: [{expression: 'object.'}, {expression: 'nothing'}]\n"+deny), want: `AdmissionPolicy "p" is invalid:
* spec.validations[0].expression: 1:8 in "object.": Syntax error: no viable alternative at input '.'
* spec.validations[1].expression: 1:1 in "nothing": "nothing" is not declared (hint: the names here are object, oldObject, request, namespaceObject, authorizer)
`},
		{name: "actions that exclude each other", document: admissionPolicy("p", rules+"  validationActions: [Deny, Warn, Deni]\n"), want: `AdmissionPolicy "p" is invalid:
* spec.validationActions: "Deny" and "Warn" exclude each other (hint: a denial shows the message already: drop "Warn")
* spec.validationActions[2]: "Deni" is not allowed; allowed are "Deny", "Warn", "Audit" (hint: did you mean "Deny"?)
`},
		{name: "a function of another version of Kubernetes", config: []string{"{apiVersion: gatehouse.dev/v1alpha1, kind: PolicyConfiguration, celCompatibilityVersion: '1.30'}"}, document: admissionPolicy("p", "  validations: [{expression: \"isSemver('1.0.0')\"}]\n"+deny), want: `AdmissionPolicy "p" is invalid: spec.validations[0].expression: 1:9 in "isSemver('1.0.0')": "isSemver" is not declared (hint: did you mean "semver"?)
`},

		// AdmissionPolicyBinding
		{name: "a binding", config: []string{admissionPolicy("p", rules+deny)}, document: binding("{policyName: p, validationActions: [Deny]}"), want: "allowed\n"},
		{name: "a binding before its policy", config: []string{admissionPolicy("images", rules+deny)}, document: binding("{policyName: image, validationActions: [Deny]}"), want: "allowed\n"},
		{name: "a binding without actions", config: []string{admissionPolicy("p", rules+deny)}, document: binding("{policyName: p, paramRef: {name: x, selector: {}}}"), want: `AdmissionPolicyBinding "b" is invalid:
* spec.paramRef: name and selector exclude each other (hint: drop one of them)
* spec.paramRef.parameterNotFoundAction: is required (hint: "Deny" refuses requests while there is no param, "Allow" skips the binding)
* spec.validationActions: is required (hint: say what a violation leads to, for example ["Deny"])
`},

		// PolicyException
		{name: "an exception", config: []string{admissionPolicy("p", rules+deny)}, document: exception("gatehouse-system", "{policies: [{name: p}], match: {namespaces: [default]}, reason: old}"), want: "allowed\n"},
		{name: "an exception that does nothing", config: []string{admissionPolicy("p", rules+deny)}, document: exception("shop", "{policies: [{name: p}], match: {names: [a]}, reason: old}"), want: `allowed
warning: PolicyException/shop/x: metadata.namespace: exceptions in "shop" do nothing (hint: allowed are "gatehouse-system", see exceptions of PolicyConfiguration)
`},
		{name: "an exception without an end", config: []string{admissionPolicy("p", rules+deny), "{apiVersion: gatehouse.dev/v1alpha1, kind: PolicyConfiguration, exceptions: {requireExpiry: true}}"}, document: exception("gatehouse-system", "{policies: [{name: p}], match: {names: [a]}, reason: old}"), want: "allowed\nwarning: PolicyException/gatehouse-system/x: spec.expiresAt: is missing, so the exception does nothing (hint: PolicyConfiguration requires it)\n"},
		{name: "an exception that has expired", config: []string{admissionPolicy("p", rules+deny)}, document: exception("gatehouse-system", "{policies: [{name: p}], match: {names: [a]}, reason: old, expiresAt: '2020-01-01T00:00:00Z'}"), want: "allowed\nwarning: PolicyException/gatehouse-system/x: spec.expiresAt: \"2020-01-01T00:00:00Z\" has passed: the exception has no effect (hint: delete it, or set a later time)\n"},
		{name: "an exception from what is not there yet", config: []string{admissionPolicy("images", rules+deny)}, document: exception("gatehouse-system", "{policies: [{name: image}, {name: images, rules: ['validations[1]']}], match: {names: [a]}, reason: old}"), want: "allowed\n"},
		{name: "an exception from everything", document: exception("gatehouse-system", "{policies: [{name: p, kind: Policy}], match: {}, reason: ' '}"), want: `PolicyException "x" is invalid:
* spec.match: is empty: an exception must select objects (hint: set namespaces, names or a selector, or containers; to disable a policy, delete its binding)
* spec.policies[0].kind: "Policy" is not allowed; allowed are "ValidatingAdmissionPolicy", "AdmissionPolicy"
* spec.reason: is required (hint: explain the exception to readers of the audit log)
`},
		{name: "a condition of an exception", document: exception("gatehouse-system", "{policies: [], match: {matchConditions: [{name: c, expression: 'object.'}]}, reason: old}"), want: `PolicyException "x" is invalid:
* spec.match.matchConditions[0].expression: 1:8 in "object.": Syntax error: no viable alternative at input '.'
* spec.policies: is required (hint: name at least one policy)
`},

		// AccessToken
		{name: "a token", document: token("ci", "{sha256: "+hash+", user: {username: ci}, expiresAt: '2099-01-01T00:00:00Z'}"), want: "allowed\n"},
		{name: "an expired token", document: token("ci", "{sha256: "+hash+", user: {username: ci}, expiresAt: '2020-01-01T00:00:00Z'}"), want: `allowed
warning: AccessToken/ci: spec.expiresAt: "2020-01-01T00:00:00Z" is in the past: the token is rejected (hint: delete the document, or issue a new token)
`},
		{name: "a token of the system", document: token("ci", "{sha256: "+hash+", user: {username: 'system:admin', groups: ['system:masters']}, expiresAt: '2099-01-01T00:00:00Z'}"), want: `AccessToken "ci" is invalid:
* spec.user.groups[0]: "system:masters" is reserved: names that begin with "system:" belong to Kubernetes itself
* spec.user.username: "system:admin" is reserved: names that begin with "system:" belong to Kubernetes itself
`},
		{name: "a token, with issuers and directories", config: []string{sources}, document: token("ci", "{sha256: "+hash+", user: {username: 'robot:ci'}, expiresAt: '2099-01-01T00:00:00Z'}"), want: "allowed\n"},
		{name: "a revocation, with issuers and directories", config: []string{sources}, document: revocation("r", "{issuer: 'https://issuer.example', sessionID: s}"), want: "allowed\n"},
		{name: "a token without a prefix", config: []string{"{apiVersion: gatehouse.dev/v1alpha1, kind: AuthenticationConfiguration, guard: {prefixes: [{source: access-tokens, username: 'robot:'}]}}"}, document: token("ci", "{sha256: "+hash+", user: {username: ci}, expiresAt: '2099-01-01T00:00:00Z'}"), want: `AccessToken "ci" is invalid: spec.user.username: "ci" must begin with "robot:", as the configuration requires for this source
`},
		{name: "a token's text in place of its hash", document: token("ci", "{sha256: "+secret+", user: {username: ci}, expiresAt: '2099-01-01T00:00:00Z'}"), want: `AccessToken "ci" is invalid: spec.sha256: contains a token, and must contain its hash: 64 lower-case hexadecimal digits (hint: anyone who can read this document has the token: delete it and issue a new one)
`},
		{name: "a token's text everywhere", document: token("ci", "{sha256: 5, user: {username: "+secret+", groups: "+secret+"}, expiresAt: "+secret+", audiences: ['', "+secret+"], "+secret+": 1}"), want: `AccessToken "ci" is invalid:
* spec.expiresAt: the value is not a time such as 2026-12-31T23:59:59Z
* spec.gatehouse_…: unknown field (hint: the allowed fields are audiences, expiresAt, scope, sha256, user)
* spec.sha256: the value is a number, expected a string (hint: put it in quotes)
* spec.user.groups: the value is a string, expected a list
`},
		{name: "a token's text as a name", document: token("gatehouse_ci_abc", "{sha256: "+hash+", user: {username: ci}, expiresAt: '2099-01-01T00:00:00Z'}"), want: `AccessToken "gatehouse_…" is invalid: metadata.name: "gatehouse_…" must be a DNS-1123 label, because it is the token's id: 1 to 63 lower-case letters, digits and "-", with a letter or a digit at both ends
`},

		// TokenRevocation
		{name: "a revocation", document: revocation("r", "{user: jane, issuedBefore: '2020-01-01T00:00:00Z'}"), want: "allowed\n"},
		{name: "a revocation of nobody and nothing", document: revocation("r", "{user: '', reason: x}"), want: `TokenRevocation "r" is invalid:
* spec.issuedBefore: is missing: nothing would be revoked (hint: for example "2026-11-20T12:00:00Z")
* spec.user: is missing (hint: the user name as the API server sees it, prefixes included)
`},
		{name: "a revocation of times to come", document: revocation("r", "{user: jane, issuedBefore: '2099-01-01T00:00:00Z'}"), want: `allowed
warning: TokenRevocation/r: spec.issuedBefore: "2099-01-01T00:00:00Z" is in the future: until then the user cannot log in at all
`},

		// Grant
		{name: "a Grant", document: grant("{subject: {user: jane}, groups: [a], expiresAt: '2099-01-01T00:00:00Z', grantedBy: boss}"), want: "allowed\n"},
		{name: "a Grant, with issuers and directories", config: []string{sources}, document: grant("{subject: {user: jane}, groups: [a], expiresAt: '2099-01-01T00:00:00Z', grantedBy: boss}"), want: "allowed\n"},
		{name: "a Grant that has ended", document: grant("{subject: {user: jane}, groups: [a], expiresAt: '2020-01-01T00:00:00Z', grantedBy: boss}"), want: `allowed
warning: Grant/g: spec.expiresAt: "2020-01-01T00:00:00Z" has passed: the Grant gives nothing (hint: delete it, or set a later time)
`},
		{name: "a Grant of the system to oneself", config: []string{"{apiVersion: gatehouse.dev/v1alpha1, kind: AuthenticationConfiguration, grants: {ownGrants: Deny, maxDuration: 1h}}"}, document: grant("{subject: {user: boss}, groups: [a, 'system:masters'], notBefore: '2099-01-01T00:00:00Z', expiresAt: '2099-01-01T02:00:00Z', grantedBy: boss}"), want: `Grant "g" is invalid:
* spec.expiresAt: "2099-01-01T02:00:00Z" is more than 1h0m0s after its start, "2099-01-01T00:00:00Z": grants.maxDuration of the AuthenticationConfiguration allows no longer (hint: set an earlier time, at most 2099-01-01T01:00:00Z)
* spec.grantedBy: "boss" is the subject too, and grants.ownGrants of the AuthenticationConfiguration is Deny (hint: have another user grant it)
* spec.groups[1]: "system:masters" is reserved: names that begin with "system:" belong to Kubernetes itself
`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := text(t, reviewer(configOf(t, tc.config...)).Review(t.Context(), about(t, tc.document, tc.old), true))
			if strings.Contains(got, secret[13:30]) {
				t.Errorf("a secret is shown")
			}
			if want := tc.want; got != want {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

// TestExpiredByTheClock: whether an exception has expired is decided by the clock of the configuration.
func TestExpiredByTheClock(t *testing.T) {
	t.Parallel()
	for year, want := range map[int]bool{2019: false, 2100: true} {
		c := configOf(t)
		c.Policy.Now = func() time.Time { return time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC) }
		for _, expiresAt := range []string{"2020-01-01T00:00:00Z", "2099-01-01T00:00:00Z"} {
			got := text(t, reviewer(c).Review(t.Context(), about(t, exception("gatehouse-system", "{policies: [{name: p}], match: {names: [a]}, reason: old, expiresAt: '"+expiresAt+"'}"), ""), true))
			if strings.Contains(got, "has passed") != want {
				t.Errorf("in %d, of an exception until %s: %s", year, expiresAt, got)
			}
		}
	}
}
