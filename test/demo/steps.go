package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
)

// step shows one thing and checks it.
type step struct {
	title   string
	says    string // what the reader is about to see, in a sentence
	summary string // what has been shown
	show    func(context.Context, *stage)
}

// steps returns the steps in order. Each builds on those before it.
func steps() []step {
	return []step{
		{
			title:   "A login with a token",
			says:    "The API server does not know this token. It asks Gatehouse whose it is.",
			summary: "a token lets Jane in, with her groups",
			show:    login,
		},
		{
			title:   "A login with a wrong token",
			says:    "The first character of its secret is mistyped. kubectl learns no more than no; Gatehouse's log has the reason\n(malformed: the check at the end of the token does not fit), and never a token. Who holds it may ask why.",
			summary: "a wrong token does not, and log and 'gatehouse whoami' say why",
			show:    wrongLogin,
		},
		{
			title:   "A pod gets its sidecar",
			says:    "Jane creates a pod with one container. What the profile log-shipper says is added on its way in.",
			summary: "a pod is equipped with its sidecar, and says so",
			show:    injection,
		},
		{
			title:   "A pod is refused",
			says:    "Every reason is named at once, of all policies: no second attempt to find the next one.",
			summary: "a pod that breaks policies is refused, with every reason",
			show:    refusal,
		},
		{
			title:   "A warning",
			says:    "A policy that is being introduced lets the pod in, and tells Jane what is wrong with it.",
			summary: "a policy can warn before it denies",
			show:    warning,
		},
		{
			title:   "The policy is enforced",
			says:    "A changed document counts at once, without a restart.",
			summary: "a changed policy is in force without a restart",
			show:    edit,
		},
		{
			title:   "Whom would a policy hit?",
			says:    "Somebody wants a new policy. It is tried on what the server has recorded, before anybody meets it.",
			summary: "a replay names whom a candidate policy would have refused",
			show:    replay,
		},
		{
			title:   "What is there already?",
			says:    "Policies judge requests. An audit judges what exists: here by the same candidate.",
			summary: "an audit names what exists and would be refused by a candidate policy",
			show:    audit,
		},
		{
			title:   "In a cluster",
			says:    "There people write custom resources instead of files. What could not be used is refused at kubectl apply.",
			summary: "custom resources are in use as soon as they are applied, or refused with what is wrong",
			show:    customResources,
		},
	}
}

func login(ctx context.Context, s *stage) {
	s.must(ctx, "kubectl --token "+s.token+" auth whoami", succeeds, prints("Username jane", "Groups [dev system:authenticated]"))
}

func wrongLogin(ctx context.Context, s *stage) {
	wrong := mistyped(s.token)
	s.must(ctx, "kubectl --token "+wrong+" auth whoami", fails, prints("Unauthorized"), lacks("jane"))
	// The answer comes first, and the line a moment later.
	s.until(ctx, "Gatehouse has logged the login", func(context.Context) error {
		log, err := os.ReadFile(s.path(gatehouseLog))
		if err == nil && !bytes.Contains(log, []byte("endpoint=authenticate")) {
			err = errors.New("it has not")
		}
		return err
	})
	s.must(ctx, "grep endpoint=authenticate gatehouse.log", succeeds, prints("decision=denied reason=malformed"), lacks(wrong))
	s.must(ctx, "echo "+wrong+" | gatehouse whoami --token-file - --server https://"+s.address+" --server-ca certs/ca.crt",
		fails, prints("malformed"), lacks("jane"))
}

// mistyped returns the token with another first character of its secret: one that
// still shows when the token is shortened.
func mistyped(token string) string {
	at := strings.LastIndexByte(token, '_') + 1
	other := "x"
	if token[at:at+1] == other {
		other = "y"
	}
	return token[:at] + other + token[at+1:]
}

func injection(ctx context.Context, s *stage) {
	s.must(ctx, "kubectl --token "+s.token+" create -f pods/checkout.yaml",
		succeeds, prints("pod/checkout created"), lacks("Warning"))
	s.must(ctx, "kubectl --token "+s.token+" get pod checkout \\\n"+
		"  -o custom-columns='POD:.metadata.name,INIT CONTAINERS:.spec.initContainers[*].name,CONTAINERS:.spec.containers[*].name'",
		succeeds, prints("checkout log-shipper checkout"))
	s.must(ctx, "kubectl --token "+s.token+` get pod checkout -o jsonpath='{.metadata.annotations.sidecar\.gatehouse\.dev/status}'`,
		succeeds, prints(`{"profiles":[{"name":"log-shipper"`, `"initContainers":["log-shipper"]`))
}

func refusal(ctx context.Context, s *stage) {
	s.must(ctx, "cat pods/miner.yaml", succeeds)
	s.must(ctx, "kubectl --token "+s.token+" create -f pods/miner.yaml", fails, prints(
		"denied the request: 7 violations:",
		"host namespaces (hostNetwork=true)",
		`privileged (container "miner" must not set securityContext.privileged=true)`,
		"allowPrivilegeEscalation != false",
		"unrestricted capabilities",
		"runAsNonRoot != true",
		"seccompProfile",
		"images must come from registry.example, and these do not: docker.io/someone/miner",
	))
}

func warning(ctx context.Context, s *stage) {
	s.must(ctx, "kubectl --token "+s.token+" create -f pods/report.yaml",
		succeeds, prints("Warning: ", "'image-tags'", `an image tagged "latest" is another image tomorrow`, "pod/report created"))
}

func edit(ctx context.Context, s *stage) {
	s.must(ctx, "sed 's/Warn/Deny/' "+tagPolicy+" > new && diff "+tagPolicy+" new; mv new "+tagPolicy, succeeds, prints("[Warn]", "[Deny]"))
	s.must(ctx, "kubectl --token "+s.token+" delete pod report", succeeds)
	s.until(ctx, "the changed policy is in force", func(ctx context.Context) error { return s.refuses(ctx, "report") })
	s.must(ctx, "kubectl --token "+s.token+" create -f pods/report.yaml",
		fails, prints("denied request: ", `an image tagged "latest" is another image tomorrow`))
}

func replay(ctx context.Context, s *stage) {
	s.must(ctx, "cp -r "+configDir+" new-config && cp candidate/owners.yaml new-config/ && tail -4 new-config/owners.yaml", succeeds)
	const command = "gatehouse replay --config new-config --kind Pod " + recordDir
	// Reviews are written every two seconds.
	s.until(ctx, "the pods are in the recording", func(ctx context.Context) error {
		text, _ := s.shell(ctx, command).CombinedOutput() // the exit code says that there are changes
		if !strings.Contains(string(text), "Pod/checkout") || !strings.Contains(string(text), "Pod/report") {
			return errors.New("they are not")
		}
		return nil
	})
	s.must(ctx, command, fails, prints("newly refused: AdmissionPolicy owners", "Pod/checkout", "users jane", "a pod needs the label team"), lacks(s.token), lacks("damaged"))
}

func audit(ctx context.Context, s *stage) {
	s.must(ctx, "gatehouse audit --context admin --config new-config --kind Pod --quiet",
		fails, prints("AdmissionPolicy owners", "fail Pod "+namespace+"/checkout", "a pod needs the label team", "failed: violations: "))
}
