package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	kjson "sigs.k8s.io/json"
)

// writeVectors writes what the Go libraries make of our inputs, so that the
// tests of setpoint-kinds need no Go: the decoding of JSON (conform.jsonl),
// quantities (quantities.txt) and protobuf bodies (one .pb and .json a file).
func writeVectors(folder string) error {
	conform, err := os.ReadFile(filepath.Join(folder, "conform.in"))
	if err != nil {
		return err
	}
	var lines bytes.Buffer
	for _, input := range strings.Split(strings.TrimSpace(string(conform)), "\n") {
		if strings.HasPrefix(input, "#") {
			continue
		}
		line, err := json.Marshal(conformCase(input))
		if err != nil {
			return fmt.Errorf("%s: %w", input, err)
		}
		lines.Write(append(line, '\n'))
	}
	if err := os.WriteFile(filepath.Join(folder, "conform.jsonl"), lines.Bytes(), 0o644); err != nil {
		return err
	}
	if err := writeQuantities(folder); err != nil {
		return err
	}
	return writeObjects(folder)
}

type conformed struct {
	Input   json.RawMessage `json:"input"`
	Output  json.RawMessage `json:"output,omitempty"`
	Unknown []string        `json:"unknown,omitempty"`
	Error   string          `json:"error,omitempty"`
}

// conformCase decodes an object as the API server does and encodes it again.
func conformCase(input string) conformed {
	result := conformed{Input: json.RawMessage(input)}
	object, err := newObject(input)
	if err != nil {
		result.Error = err.Error()
		return result
	}
	strict, err := kjson.UnmarshalStrict([]byte(input), object)
	if err != nil {
		result.Error = err.Error()
		return result
	}
	for _, err := range strict {
		result.Unknown = append(result.Unknown, err.Error())
	}
	fillBytes(object)
	if result.Output, err = json.Marshal(object); err != nil {
		result.Error = err.Error()
	}
	return result
}

// fillBytes makes of nil what storage makes of it: protobuf has no nil in a map
// of bytes. These are all maps of bytes that there are.
func fillBytes(object runtime.Object) {
	var entries map[string][]byte
	switch object := object.(type) {
	case *corev1.ConfigMap:
		entries = object.BinaryData
	case *corev1.Secret:
		entries = object.Data
	}
	for key, value := range entries {
		if value == nil {
			entries[key] = []byte{}
		}
	}
}

func newObject(input string) (runtime.Object, error) {
	var meta struct{ APIVersion, Kind string }
	if err := json.Unmarshal([]byte(input), &meta); err != nil {
		return nil, err
	}
	gv, err := schema.ParseGroupVersion(meta.APIVersion)
	if err != nil {
		return nil, err
	}
	return known.New(gv.WithKind(meta.Kind))
}

// writeQuantities writes lines `input<TAB>output` or `input<TAB>!error`.
func writeQuantities(folder string) error {
	inputs, err := os.ReadFile(filepath.Join(folder, "quantities.in"))
	if err != nil {
		return err
	}
	var lines strings.Builder
	for _, input := range strings.Split(strings.TrimSuffix(string(inputs), "\n"), "\n") {
		quantity, err := resource.ParseQuantity(strings.TrimSpace(input))
		output := ""
		if err != nil {
			output = "!" + err.Error()
		} else {
			output = quantity.String()
		}
		fmt.Fprintf(&lines, "%s\t%s\n", input, output)
	}
	return os.WriteFile(filepath.Join(folder, "quantities.txt"), []byte(lines.String()), 0o644)
}

// writeObjects turns each object of objects.in into a protobuf body, NAME.pb,
// and into the JSON that Go has for it, NAME.json.
func writeObjects(folder string) error {
	inputs, err := os.ReadFile(filepath.Join(folder, "objects.in"))
	if err != nil {
		return err
	}
	serializer := protobuf.NewSerializer(known, known)
	for _, input := range strings.Split(strings.TrimSpace(string(inputs)), "\n") {
		object, err := newObject(input)
		if err != nil {
			return fmt.Errorf("%s: %w", input, err)
		}
		if strict, err := kjson.UnmarshalStrict([]byte(input), object); err != nil || len(strict) > 0 {
			return fmt.Errorf("%s: %v %v", input, err, strict)
		}
		var body bytes.Buffer
		if err := serializer.Encode(object, &body); err != nil {
			return err
		}
		// Protobuf does not tell an empty list from none: the JSON is of what comes back.
		gvk := object.GetObjectKind().GroupVersionKind()
		if object, _, err = serializer.Decode(body.Bytes(), nil, nil); err != nil {
			return err
		}
		object.GetObjectKind().SetGroupVersionKind(gvk)
		text, err := json.MarshalIndent(object, "", "  ")
		if err != nil {
			return err
		}
		name := strings.ToLower(gvk.Kind)
		if err := os.WriteFile(filepath.Join(folder, name+".pb"), body.Bytes(), 0o644); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, name+".json"), append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	return nil
}
