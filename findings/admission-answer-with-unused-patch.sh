#!/bin/sh
# admission-answer-with-unused-patch.sh: which answers of admission webhooks the API server calls invalid.
#
#	sh findings/admission-answer-with-unused-patch.sh
#
# A validating webhook's denial that carries a patch, or only a patch type, is no denial but an invalid answer: the call counts as failed,
# failurePolicy decides, and under Ignore the request is admitted. The same holds for a mutating webhook that sets one of patch and patchType alone,
# also when it denies, while a mutating denial with both is a denial. Frameworks that fill in patchType for every answer meet this.
# The check is k8s.io/apiserver's VerifyAdmissionResponse.
# It needs Go and its module proxy. It ends with 1 if this changes.
set -eu
behaviour=$(sed -n '/^#\t/,/^# It needs/{/^#\t/d;/^# It needs/d;s/^# //p;}' "$0")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >main.go <<'EOF'
package main

import (
	"fmt"
	"os"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/request"
)

func main() {
	patchType := admissionv1.PatchTypeJSONPatch
	changed := false
	for _, c := range []struct {
		mutating, patch, patchType, valid bool
	}{
		{false, false, false, true},
		{false, true, true, false},
		{false, false, true, false},
		{true, false, false, true},
		{true, false, true, false},
		{true, true, false, false},
		{true, true, true, true},
	} {
		review := &admissionv1.AdmissionReview{Response: &admissionv1.AdmissionResponse{UID: "1"}} // allowed is false
		review.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"))
		if c.patch {
			review.Response.Patch = []byte("[]")
		}
		if c.patchType {
			review.Response.PatchType = &patchType
		}
		_, err := request.VerifyAdmissionResponse("1", c.mutating, review)
		fmt.Printf("denial, mutating %t, patch %t, patchType %t: %v\n", c.mutating, c.patch, c.patchType, err)
		changed = changed || (err == nil) != c.valid
	}
	if changed {
		fmt.Println("this has changed")
		os.Exit(1)
	}
}
EOF
cat >go.mod <<'EOF'
module finding

go 1.26

require (
	k8s.io/api v0.37.2
	k8s.io/apiserver v0.37.2
)
EOF
unset GOFLAGS
GOWORK=off go mod tidy >tidy.log 2>&1 || { cat tidy.log; exit 2; }
echo "version: k8s.io/api v0.37.2, k8s.io/apiserver v0.37.2"
echo "behaviour: $behaviour"
echo "output:"
GOWORK=off go run .
