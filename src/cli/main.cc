#include "cli/cli.h"

int main(int argc, char** argv) { return starling::starling_main(argc, argv); }
