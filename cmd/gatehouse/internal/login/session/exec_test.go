package session

import (
	"strings"
	"testing"
)

func TestParseCall(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	for _, c := range []struct {
		name, info  string
		interactive *bool
		says        string
	}{
		{
			name: "v1", info: `{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","spec":{"interactive":true}}`,
			interactive: &yes,
		},
		{
			name: "v1 with a cluster", interactive: &no,
			info: `{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","spec":{"cluster":{"server":"https://a"},"interactive":false},"status":null}`,
		},
		{name: "v1 without a word", info: `{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","spec":{}}`},
		{name: "v1beta1", info: `{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1beta1"}`, says: `apiVersion "client.authentication.k8s.io/v1beta1" must be client.authentication.k8s.io/v1 (hint: `},
		{name: "v1alpha1", info: `{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1alpha1"}`, says: `apiVersion "client.authentication.k8s.io/v1alpha1"`},
		{name: "no version", info: `{"kind":"ExecCredential"}`, says: `apiVersion ""`},
		{name: "another group", info: `{"kind":"ExecCredential","apiVersion":"v1"}`, says: `apiVersion "v1"`},
		{name: "another kind", info: `{"kind":"Pod","apiVersion":"client.authentication.k8s.io/v1"}`, says: `kind "Pod"`},
		{name: "not JSON", info: `hush`, says: "must be an ExecCredential in JSON"},
		{name: "wrong type", info: `{"kind":"ExecCredential","spec":{"interactive":"hush"}}`, says: "must be an ExecCredential in JSON"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := ParseCall(c.info)
			if (err == nil) != (c.says == "") || err != nil && (!strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "hush")) {
				t.Fatalf("got %v, want %q", err, c.says)
			}
			if (got.Interactive == nil) != (c.interactive == nil) || got.Interactive != nil && *got.Interactive != *c.interactive {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestAnswer(t *testing.T) {
	t.Parallel()
	yes := true
	const want = `{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","spec":{"interactive":true},"status":{"expirationTimestamp":"2026-11-20T12:59:30Z","token":"hush"}}`
	got, err := Call{&yes}.Answer(credential("hush", noon))
	if err != nil || string(got) != want+"\n" {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
}
