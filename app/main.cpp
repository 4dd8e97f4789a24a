#include <cstdio>
int main() { std::puts("foresay"); }
