package schema

import "regexp"

// secretFields matches the paths of fields whose values people use for secrets: the data of Secrets and ConfigMaps, annotations,
// environment variables, arguments and HTTP headers.
var secretFields = regexp.MustCompile(`^(data|binaryData|stringData)($|[.\[])|(^|\.)annotations($|[.\[])|` +
	`(^|\.)env(\[\d+\](\.value)?)?$|\.httpHeaders\[\d+\]\.value$|\.(args|command)(\[\d+\])?$`)

// IsSecret reports whether the value at a path of an object may be a secret, so that no message has it.
func IsSecret(path string) bool { return secretFields.MatchString(path) }
