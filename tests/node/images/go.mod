module tidegate.dev/stand-in

go 1.26
